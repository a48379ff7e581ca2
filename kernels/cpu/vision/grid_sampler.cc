#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace grid_sampler_kernels {
namespace {

enum class Padding : uint8_t { kZeros, kBorder, kReflection };

struct GridSamplerAttrs {
  bool nearest = false;
  Padding padding = Padding::kZeros;
  bool align_corners = true;
};

GridSamplerAttrs read_attrs(const KernelSetup& op) {
  GridSamplerAttrs attrs;
  attrs.nearest = op.attr<std::string>("mode") == "nearest";
  const auto padding = op.attr<std::string>("padding_mode");
  attrs.padding = padding == "border"       ? Padding::kBorder
                  : padding == "reflection" ? Padding::kReflection
                                            : Padding::kZeros;
  attrs.align_corners = op.attr<bool>("align_corners");
  return attrs;
}

// Depth (1 for flat images), height and width.
struct GridSamplerShape {
  int64_t batch = 0;
  int64_t channels = 0;
  size_t spatial = 2;
  std::array<int64_t, 3> in{1, 1, 1};
  int64_t out = 1;  // number of points
  [[nodiscard]] int64_t pixels() const { return in[0] * in[1] * in[2]; }
};

StatusOr<GridSamplerShape> shape_of(const Tensor& x, const Tensor& grid) {
  const size_t rank = x.rank();
  if ((rank != 4 && rank != 5) || grid.rank() != rank || grid.dtype() != x.dtype() ||
      grid.dim(0) != x.dim(0) || grid.dims().back() != static_cast<int64_t>(rank) - 2) {
    return KernelContext::error("X {} and Grid {} do not match", describe(x), describe(grid));
  }
  GridSamplerShape s;
  s.batch = x.dim(0);
  s.channels = x.dim(1);
  s.spatial = rank - 2;
  for (size_t i = 0; i < s.spatial; ++i) s.in[3 - s.spatial + i] = x.dims()[2 + i];
  for (size_t i = 0; i < s.spatial; ++i) s.out *= grid.dims()[1 + i];
  if (s.pixels() == 0) return KernelContext::error("X must not be empty, found {}", describe(x));
  return s;
}

// A coordinate in pixels and its derivative with respect to the coordinate in the grid.
template <typename T>
struct Place {
  T at;
  T slope;
};

template <typename T>
Place<T> clip(Place<T> p, T last) {
  if (p.at < 0) return {T{0}, T{0}};
  if (p.at > last) return {last, T{0}};
  return p;
}

// Reflects a coordinate at the borders of the image. The borders are the centres of the outer
// pixels (align_corners) or their outer edges.
template <typename T>
Place<T> reflect(Place<T> p, T last, bool align_corners) {
  const T shift = align_corners ? T{0} : T{0.5};
  const T period = 2 * (last + 2 * shift);
  if (period == 0) return {T{0}, T{0}};
  T distance = p.at + shift;
  if (distance < 0) p.slope = -p.slope;
  distance = std::fabs(distance);
  distance -= std::floor(distance / period) * period;
  if (distance > period - distance) p.slope = -p.slope;
  p.at = std::min(distance, period - distance) - shift;
  return p;
}

template <typename T>
Place<T> place_of(const GridSamplerAttrs& attrs, T coordinate, int64_t size) {
  const T last = static_cast<T>(size - 1);
  const T half = static_cast<T>(attrs.align_corners ? size - 1 : size) / 2;
  Place<T> p{attrs.align_corners ? (coordinate + 1) * half : (coordinate + 1) * half - T{0.5},
             half};
  if (attrs.padding == Padding::kReflection) p = reflect(p, last, attrs.align_corners);
  if (attrs.padding != Padding::kZeros) p = clip(p, last);
  // NaN and distant coordinates count as outside
  if (!(p.at > -2 && p.at < last + 2)) p = {T{-2}, T{0}};
  return p;
}

// Up to eight pixels around a point.
template <typename T>
struct Corners {
  int count = 0;
  std::array<int64_t, 8> pixel;
  std::array<T, 8> weight;
  std::array<std::array<T, 3>, 8> slope;  // d weight / d coordinate of the grid: x, y, z
};

template <typename T>
Corners<T> corners_of(const GridSamplerAttrs& attrs, const GridSamplerShape& s,
                      const T* coordinates) {
  std::array<Place<T>, 3> place{Place<T>{0, 0}, Place<T>{0, 0}, Place<T>{0, 0}};
  // the grid has the order x, y, z; dims have the order depth, height, width
  for (size_t i = 0; i < s.spatial; ++i)
    place[2 - i] = place_of(attrs, coordinates[i], s.in[2 - i]);
  Corners<T> c;
  const int all = attrs.nearest ? 1 : 1 << s.spatial;
  for (int k = 0; k < all; ++k) {
    std::array<T, 3> part{1, 1, 1};
    std::array<T, 3> part_slope{0, 0, 0};
    int64_t pixel = 0;
    bool inside = true;
    for (size_t d = 0; d < 3; ++d) {
      int64_t index = 0;
      if (d >= 3 - s.spatial && attrs.nearest) {
        index = static_cast<int64_t>(std::round(place[d].at));
      } else if (d >= 3 - s.spatial) {
        const bool far = (k >> (2 - d) & 1) != 0;
        const T low = std::floor(place[d].at);
        index = static_cast<int64_t>(low) + (far ? 1 : 0);
        part[d] = far ? place[d].at - low : 1 - (place[d].at - low);
        part_slope[d] = far ? place[d].slope : -place[d].slope;
      }
      inside = inside && index >= 0 && index < s.in[d];
      pixel = pixel * s.in[d] + index;
    }
    if (!inside) continue;
    const auto at = static_cast<size_t>(c.count++);
    c.pixel[at] = pixel;
    c.weight[at] = part[0] * part[1] * part[2];
    c.slope[at] = {part[0] * part[1] * part_slope[2], part[0] * part_slope[1] * part[2],
                   part_slope[0] * part[1] * part[2]};
  }
  return c;
}

struct GridSamplerOperands {
  const Tensor* x;
  const Tensor* grid;
  GridSamplerShape shape;
};

StatusOr<GridSamplerOperands> operands_of(const KernelContext& ctx, ArgIndex x, ArgIndex grid) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const points, needed(ctx, grid, "Grid"));
  MILLRACE_ASSIGN_OR_RETURN(const GridSamplerShape shape, shape_of(*in, *points));
  return GridSamplerOperands{in, points, shape};
}

StatusOr<Kernel> grid_sampler(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex grid = op.input("Grid");
  const ArgIndex output = op.output("Output");
  return Kernel([=, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GridSamplerOperands operands, operands_of(ctx, x, grid));
    const auto& [in, points, s] = operands;
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* const out = ctx.out(output).data<T>();
      ctx.device().parallel_for(s.batch * s.out, 1024, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const auto c =
              corners_of(attrs, s, points->data<T>() + i * static_cast<int64_t>(s.spatial));
          const int64_t n = i / s.out;
          for (int64_t channel = n * s.channels; channel < (n + 1) * s.channels; ++channel) {
            const T* const plane = in->data<T>() + channel * s.pixels();
            T sum = 0;
            for (size_t k = 0; k < static_cast<size_t>(c.count); ++k)
              sum += c.weight[k] * plane[c.pixel[k]];
            out[channel * s.out + i % s.out] = sum;
          }
        }
      });
      return Ok();
    });
  });
}

template <typename T>
void gradient(const GridSamplerAttrs& attrs, const GridSamplerShape& s, const T* x, const T* grid,
              const T* dout, T* dx, T* dgrid) {
  const auto spatial = static_cast<int64_t>(s.spatial);
  for (int64_t i = 0; i < s.batch * s.out; ++i) {
    const auto c = corners_of(attrs, s, grid + i * spatial);
    const int64_t n = i / s.out;
    std::array<T, 3> along{};
    for (int64_t channel = n * s.channels; channel < (n + 1) * s.channels; ++channel) {
      const T g = dout[channel * s.out + i % s.out];
      for (size_t k = 0; k < static_cast<size_t>(c.count); ++k) {
        const int64_t pixel = channel * s.pixels() + c.pixel[k];
        if (dx != nullptr) dx[pixel] += g * c.weight[k];
        for (size_t d = 0; d < 3; ++d) along[d] += g * c.slope[k][d] * x[pixel];
      }
    }
    for (int64_t d = 0; dgrid != nullptr && d < spatial; ++d)
      dgrid[i * spatial + d] = along[static_cast<size_t>(d)];
  }
}

StatusOr<Kernel> grid_sampler_grad(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex grid = op.input("Grid");
  const ArgIndex output_grad = op.input("Output@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  const ArgIndex grid_grad = op.output("Grid@GRAD");
  return Kernel([=, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GridSamplerOperands operands, operands_of(ctx, x, grid));
    const auto& [in, points, s] = operands;
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, result_like(ctx, x_grad, *in));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dgrid, result_like(ctx, grid_grad, *points));
    if (dx != nullptr) fill_zero(*dx);
    if (dgrid != nullptr) fill_zero(*dgrid);
    const Tensor* const dout = ctx.find_in(output_grad);
    if (dout == nullptr) return Ok();
    if (dout->dtype() != in->dtype() || dout->numel() != s.batch * s.channels * s.out)
      return ctx.error("Output@GRAD {} does not fit X {} and Grid {}", describe(*dout),
                       describe(*in), describe(*points));
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      gradient(attrs, s, in->data<T>(), points->data<T>(), dout->data<T>(),
               dx == nullptr ? nullptr : dx->data<T>(),
               dgrid == nullptr ? nullptr : dgrid->data<T>());
      return Ok();
    });
  });
}

}  // namespace
}  // namespace grid_sampler_kernels

void add_vision_grid_sampler(KernelRegistry& registry) {
  using namespace grid_sampler_kernels;
  registry.add("grid_sampler", grid_sampler);
  registry.add("grid_sampler_grad", grid_sampler_grad);
}

}  // namespace millrace::kernels
