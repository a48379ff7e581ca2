#include <array>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

// pad2d and pad3d: a border around the spatial dims, with one value or with elements of the tensor.
namespace millrace::kernels {
namespace pad_spatial_kernels {
namespace {

enum class Mode { kConstant, kReflect, kEdge, kCircular };

// Images viewed as [outer, depth, height, width, inner]; a missing dim has size 1.
struct Geometry {
  int64_t outer = 1;
  int64_t inner = 1;
  std::array<int64_t, 3> size{1, 1, 1};    // of the tensor without border
  std::array<int64_t, 3> padded{1, 1, 1};  // of the tensor with border
  // for each padded index of each dim, its source index; -1: the constant
  std::array<std::vector<int64_t>, 3> source;
};

struct PadArgs {
  explicit PadArgs(const KernelSetup& op)
      : spatial(op.def().find_attr("value") != nullptr ? 3 : 2),
        paddings(op, "paddings", "Paddings") {
    const auto name = op.attr<std::string>("mode");
    mode = name == "reflect"    ? Mode::kReflect
           : name == "circular" ? Mode::kCircular
           : name == "constant" ? Mode::kConstant
                                : Mode::kEdge;
    value = op.attr<float>(spatial == 3 ? "value" : "pad_value");
    channels_last = op.attr<std::string>("data_format").back() == 'C';
  }
  size_t spatial;
  IntList paddings;
  Mode mode = Mode::kConstant;
  double value = 0;
  bool channels_last = false;
};

int64_t source_index(Mode mode, int64_t at, int64_t size) {
  if (at >= 0 && at < size) return at;
  switch (mode) {
    case Mode::kConstant:
      return -1;
    case Mode::kReflect:
      return at < 0 ? -at : 2 * (size - 1) - at;
    case Mode::kEdge:
      return at < 0 ? 0 : size - 1;
    case Mode::kCircular:
      return ((at % size) + size) % size;
  }
  return -1;
}

// Errors: a border that the mode cannot fill from the tensor.
Status map_dim(const KernelContext& ctx, Mode mode, int64_t size, int64_t before, int64_t after,
               std::vector<int64_t>& map) {
  const int64_t limit = mode == Mode::kReflect ? size - 1 : size;
  const bool fits = mode == Mode::kConstant || (mode == Mode::kEdge || mode == Mode::kCircular
                                                    ? size > 0
                                                    : before <= limit && after <= limit);
  const int64_t padded = size + before + after;
  if (!fits || padded < 0) {
    return ctx.error("a dim of {} cannot be padded by {} and {} in this mode", size, before, after);
  }
  map.resize(static_cast<size_t>(padded));
  for (int64_t i = 0; i < padded; ++i)
    map[static_cast<size_t>(i)] = source_index(mode, i - before, size);
  return Ok();
}

// \param x  dims of the tensor without border
Status set_geometry(const KernelContext& ctx, const PadArgs& args, llvm::ArrayRef<int64_t> x,
                    Geometry& g) {
  if (x.size() != args.spatial + 2) return ctx.error("X must have rank {}", args.spatial + 2);
  MILLRACE_ASSIGN_OR_RETURN(const Ints pads, args.paddings.read(ctx));
  if (pads.size() != 2 * args.spatial)
    return ctx.error("there are {} paddings, expected {}", pads.size(), 2 * args.spatial);
  g.outer = args.channels_last ? x[0] : x[0] * x[1];
  g.inner = args.channels_last ? x.back() : 1;
  const size_t first = args.channels_last ? 1 : 2;
  for (size_t i = 0; i < args.spatial; ++i) {
    // pad3d lists the last dim first, pad2d the first one
    const size_t pair = args.spatial == 3 ? 2 - i : i;
    const size_t at = i + 3 - args.spatial;
    g.size[at] = x[first + i];
    g.padded[at] = x[first + i] + pads[2 * pair] + pads[2 * pair + 1];
    MILLRACE_RETURN_IF_ERROR(
        map_dim(ctx, args.mode, x[first + i], pads[2 * pair], pads[2 * pair + 1], g.source[at]));
  }
  for (size_t at = 0; at < 3 - args.spatial; ++at) g.source[at] = {0};
  return Ok();
}

Dims padded_dims(const PadArgs& args, llvm::ArrayRef<int64_t> x, const Geometry& g) {
  Dims dims(x.begin(), x.end());
  const size_t first = args.channels_last ? 1 : 2;
  for (size_t i = 0; i < args.spatial; ++i) dims[first + i] = g.padded[i + 3 - args.spatial];
  return dims;
}

// Calls row(padded_row, source_row) for the rows of image n. Both are indices of rows of width *
// inner elements; source_row is -1 if the whole row is the constant.
template <typename Fn>
void each_row(const Geometry& g, int64_t n, Fn&& row) {
  for (int64_t d = 0; d < g.padded[0]; ++d) {
    const int64_t sd = g.source[0][static_cast<size_t>(d)];
    for (int64_t h = 0; h < g.padded[1]; ++h) {
      const int64_t sh = g.source[1][static_cast<size_t>(h)];
      const int64_t padded_row = (n * g.padded[0] + d) * g.padded[1] + h;
      row(padded_row, sd < 0 || sh < 0 ? -1 : (n * g.size[0] + sd) * g.size[1] + sh);
    }
  }
}

// each_row() for all images, on several threads.
template <typename Fn>
void each_row_of_images(CpuDevice& device, const Geometry& g, Fn&& row) {
  const int64_t elements = g.padded[2] * g.inner;
  const int64_t work = std::max<int64_t>(1, elements * g.padded[0] * g.padded[1]);
  device.parallel_for(g.outer, std::max<int64_t>(1, 32768 / work), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) each_row(g, n, row);
  });
}

template <typename U>
void pad_images(CpuDevice& device, const Geometry& g, U value, const U* x, U* out) {
  const int64_t row = g.padded[2] * g.inner;
  each_row_of_images(device, g, [&](int64_t padded_row, int64_t source_row) {
    U* const to = out + padded_row * row;
    if (source_row < 0) {
      std::fill_n(to, row, value);
      return;
    }
    const U* const from = x + source_row * g.size[2] * g.inner;
    for (int64_t w = 0; w < g.padded[2]; ++w) {
      const int64_t sw = g.source[2][static_cast<size_t>(w)];
      for (int64_t c = 0; c < g.inner; ++c)
        to[w * g.inner + c] = sw < 0 ? value : from[sw * g.inner + c];
    }
  });
}

template <typename T>
void add_images(CpuDevice& device, const Geometry& g, const T* grad, T* x_grad) {
  const int64_t row = g.padded[2] * g.inner;
  each_row_of_images(device, g, [&](int64_t padded_row, int64_t source_row) {
    if (source_row < 0) return;
    const T* const from = grad + padded_row * row;
    T* const to = x_grad + source_row * g.size[2] * g.inner;
    for (int64_t w = 0; w < g.padded[2]; ++w) {
      const int64_t sw = g.source[2][static_cast<size_t>(w)];
      if (sw < 0) continue;
      for (int64_t c = 0; c < g.inner; ++c)
        to[sw * g.inner + c] = to[sw * g.inner + c] + from[w * g.inner + c];
    }
  });
}

StatusOr<Kernel> pad_spatial(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const PadArgs args(op);
  return Kernel([=, g = Geometry{}](const KernelContext& ctx) mutable -> Status {
    const Tensor& from = ctx.in(x);
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(set_geometry(ctx, args, from.dims(), g));
    MILLRACE_RETURN_IF_ERROR(size_output(to, from.dtype(), padded_dims(args, from.dims(), g)));
    return dispatch<AllNumberTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      pad_images<T>(ctx.device(), g, static_cast<T>(static_cast<Compute<T>>(args.value)),
                    from.data<T>(), to.data<T>());
      return Ok();
    });
  });
}

StatusOr<Kernel> pad_spatial_grad(const KernelSetup& op) {
  const GradientArgs gradient(op);
  const PadArgs args(op);
  return Kernel([=, g = Geometry{}](const KernelContext& ctx) mutable -> Status {
    const GradientTensors grads = gradient.find(ctx, StartsAs::kZeros);
    if (!grads) return Ok();
    MILLRACE_RETURN_IF_ERROR(set_geometry(ctx, args, grads.to->dims(), g));
    if (grads.from->dims() != llvm::ArrayRef<int64_t>(padded_dims(args, grads.to->dims(), g)) ||
        grads.from->dtype() != grads.to->dtype())
      return ctx.error("Out@GRAD {} is not X@GRAD {} padded", describe(*grads.from),
                       describe(*grads.to));
    return dispatch<AllFloatTypes>(grads.to->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      add_images<T>(ctx.device(), g, grads.from->data<T>(), grads.to->data<T>());
      return Ok();
    });
  });
}

}  // namespace
}  // namespace pad_spatial_kernels

void add_tensor_pad_spatial(KernelRegistry& registry) {
  using namespace pad_spatial_kernels;
  registry.add("pad2d", pad_spatial);
  registry.add("pad3d", pad_spatial);
  registry.add("pad2d_grad", pad_spatial_grad);
  registry.add("pad3d_grad", pad_spatial_grad);
}

}  // namespace millrace::kernels
