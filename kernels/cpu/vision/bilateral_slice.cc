#include <algorithm>
#include <cmath>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

struct SliceDims {
  int64_t batch, channels, height, width;
  int64_t depth, rows, columns;
  int64_t factors;  // per output channel: one for each input channel, and the offset
  int64_t outputs;

  [[nodiscard]] int64_t pixels() const { return height * width; }
  [[nodiscard]] int64_t cells() const { return depth * rows * columns; }
};

StatusOr<SliceDims> slice_dims(const KernelContext& ctx, const Tensor& x, const Tensor& grid,
                               const Tensor& guide, bool has_offset) {
  const bool ranks = x.rank() == 4 && grid.rank() == 5 && guide.rank() == 3;
  if (!ranks || grid.dim(0) != x.dim(0) || guide.dim(0) != x.dim(0) || guide.dim(1) != x.dim(2) ||
      guide.dim(2) != x.dim(3) || grid.dtype() != x.dtype() || guide.dtype() != x.dtype())
    return ctx.error("X {}, Grid {} and Guide {} do not match", describe(x), describe(grid),
                     describe(guide));
  SliceDims d{x.dim(0), x.dim(1), x.dim(2), x.dim(3), grid.dim(2), grid.dim(3), grid.dim(4), 0, 0};
  d.factors = d.channels + (has_offset ? 1 : 0);
  if (d.factors == 0 || grid.dim(1) % d.factors != 0 || d.cells() == 0)
    return ctx.error("Grid {} must have a multiple of {} channels and no empty dim", describe(grid),
                     d.factors);
  d.outputs = grid.dim(1) / d.factors;
  return d;
}

// The (up to two) cells along an axis between which a position is.
template <typename T>
struct CellPair {
  int64_t cell[2];
  T weight[2];
  T slope[2];  // d weight / d position
};

template <typename T>
CellPair<T> cells_along(T place, int64_t size, bool smooth) {
  CellPair<T> pair;
  const T first = std::floor(place - T(0.5));
  for (int k = 0; k < 2; ++k) {
    const T centre = first + static_cast<T>(k) + T(0.5);
    const T distance = centre - place;
    // the square root makes the derivative continuous where guide and cell coincide
    const T away = smooth ? std::sqrt(distance * distance + T(1e-8)) : std::abs(distance);
    const T bounded = std::clamp(first + static_cast<T>(k), T(0), static_cast<T>(size - 1));
    pair.cell[k] = static_cast<int64_t>(bounded);
    pair.weight[k] = std::max(T(1) - away, T(0));
    pair.slope[k] = away > T(1) ? T(0) : distance / away;
  }
  return pair;
}

// Calls body(cell, weight, d weight / d guide) for the cells around a pixel.
template <typename T, typename Body>
void around_pixel(const SliceDims& d, int64_t y, int64_t x, T guide, Body&& body) {
  const auto scaled = [](int64_t at, int64_t cells, int64_t pixels) {
    return (static_cast<T>(at) + T(0.5)) * static_cast<T>(cells) / static_cast<T>(pixels);
  };
  const CellPair<T> across =
      cells_along(scaled(x, d.columns, d.width), d.columns, /*smooth=*/false);
  const CellPair<T> down = cells_along(scaled(y, d.rows, d.height), d.rows, /*smooth=*/false);
  const T depth = static_cast<T>(d.depth);
  const CellPair<T> deep = cells_along(guide * depth, d.depth, /*smooth=*/true);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      const T plane = across.weight[i] * down.weight[j];
      for (int k = 0; k < 2; ++k) {
        const int64_t cell = (deep.cell[k] * d.rows + down.cell[j]) * d.columns + across.cell[i];
        body(cell, plane * deep.weight[k], plane * deep.slope[k] * depth);
      }
    }
  }
}

struct SlicePixel {
  int64_t image, y, x;
};
// Calls body(pixel, index in Guide) for all pixels.
template <typename Body>
void each_pixel(const SliceDims& d, Body&& body) {
  for (int64_t i = 0; i < d.batch * d.pixels(); ++i) {
    const int64_t at = i % d.pixels();
    body(SlicePixel{i / d.pixels(), at / d.width, at % d.width}, i);
  }
}

StatusOr<Kernel> bilateral_slice(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex grid_arg = op.input("Grid");
  const ArgIndex guide_arg = op.input("Guide");
  const ArgIndex out = op.output("Out");
  const bool has_offset = op.attr<bool>("has_offset");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    const Tensor& grid = ctx.in(grid_arg);
    const Tensor& guide = ctx.in(guide_arg);
    MILLRACE_ASSIGN_OR_RETURN(const SliceDims d, slice_dims(ctx, from, grid, guide, has_offset));
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(to.resize(from.dtype(), {d.batch, d.outputs, d.height, d.width}));
    return dispatch<FloatTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      fill_zero(ctx.device(), to);
      each_pixel(d, [&](const SlicePixel& p, int64_t place) {
        const int64_t at = place % d.pixels();
        const T* const cells = grid.data<T>() + p.image * d.outputs * d.factors * d.cells();
        const T* const pixel = from.data<T>() + p.image * d.channels * d.pixels() + at;
        T* const result = to.data<T>() + p.image * d.outputs * d.pixels() + at;
        around_pixel(d, p.y, p.x, guide.data<T>()[place], [&](int64_t cell, T weight, T) {
          for (int64_t c = 0; c < d.outputs * d.factors; ++c) {
            const int64_t channel = c % d.factors;
            const T value = channel < d.channels ? pixel[channel * d.pixels()] : T(1);
            result[c / d.factors * d.pixels()] += cells[c * d.cells() + cell] * weight * value;
          }
        });
      });
      return Ok();
    });
  });
}

struct SliceGrads {
  Tensor* x = nullptr;
  Tensor* grid = nullptr;
  Tensor* guide = nullptr;
};

template <typename T>
void slice_backward(const SliceDims& d, const Tensor& x, const Tensor& grid, const Tensor& guide,
                    const Tensor& dout, const SliceGrads& grads) {
  each_pixel(d, [&](const SlicePixel& p, int64_t place) {
    const int64_t at = place % d.pixels();
    const int64_t cells_at = p.image * d.outputs * d.factors * d.cells();
    const int64_t pixel_at = p.image * d.channels * d.pixels() + at;
    const T* const grad = dout.data<T>() + p.image * d.outputs * d.pixels() + at;
    around_pixel(d, p.y, p.x, guide.data<T>()[place], [&](int64_t cell, T weight, T slope) {
      for (int64_t c = 0; c < d.outputs * d.factors; ++c) {
        const int64_t channel = c % d.factors;
        const bool offset = channel == d.channels;
        const T g = grad[c / d.factors * d.pixels()];
        const T value = offset ? T(1) : x.data<T>()[pixel_at + channel * d.pixels()];
        const int64_t factor_at = cells_at + c * d.cells() + cell;
        const T factor = grid.data<T>()[factor_at];
        if (grads.grid != nullptr) grads.grid->data<T>()[factor_at] += g * weight * value;
        if (grads.x != nullptr && !offset)
          grads.x->data<T>()[pixel_at + channel * d.pixels()] += g * weight * factor;
        if (grads.guide != nullptr) grads.guide->data<T>()[place] += g * slope * factor * value;
      }
    });
  });
}

StatusOr<Kernel> bilateral_slice_grad(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex grid_arg = op.input("Grid");
  const ArgIndex guide_arg = op.input("Guide");
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  const ArgIndex dgrid = op.output("Grid@GRAD");
  const ArgIndex dguide = op.output("Guide@GRAD");
  const bool has_offset = op.attr<bool>("has_offset");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const grid, needed(ctx, grid_arg, "Grid"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const guide, needed(ctx, guide_arg, "Guide"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const grad, needed(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const SliceDims d, slice_dims(ctx, *from, *grid, *guide, has_offset));
    if (grad->dtype() != from->dtype() || grad->numel() != d.batch * d.outputs * d.pixels())
      return ctx.error("Out@GRAD must be [{}, {}, {}, {}], found {}", d.batch, d.outputs, d.height,
                       d.width, describe(*grad));
    SliceGrads grads;
    MILLRACE_ASSIGN_OR_RETURN(grads.x, result_like(ctx, dx, *from));
    MILLRACE_ASSIGN_OR_RETURN(grads.grid, result_like(ctx, dgrid, *grid));
    MILLRACE_ASSIGN_OR_RETURN(grads.guide, result_like(ctx, dguide, *guide));
    for (Tensor* const tensor : {grads.x, grads.grid, grads.guide}) {
      if (tensor != nullptr) fill_zero(ctx.device(), *tensor);
    }
    return dispatch<FloatTypes>(from->dtype(), [&](auto tag) -> Status {
      slice_backward<typename decltype(tag)::type>(d, *from, *grid, *guide, *grad, grads);
      return Ok();
    });
  });
}

}  // namespace

void add_vision_bilateral_slice(KernelRegistry& registry) {
  registry.add("bilateral_slice", bilateral_slice);
  registry.add("bilateral_slice_grad", bilateral_slice_grad);
}

}  // namespace millrace::kernels
