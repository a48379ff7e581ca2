#include "kernels/cpu/elementwise/binary.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/layouts.h"
#include "kernels/cpu/sums.h"

namespace millrace::kernels {
namespace binary_kernels {
namespace {

bool is_repeated(const BroadcastNest& nest, size_t operand) {
  return std::any_of(nest.levels().begin(), nest.levels().end(),
                     [&](const auto& level) { return level.stride[operand] == 0; });
}

// Adds one run of gradients to the gradient of an operand, which advances or is a single element.
template <typename T>
void add_run(const T* values, int64_t count, bool advances, T factor, T* out) {
  if (!advances) {
    *out += factor * sum_of(values, count);
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] += factor * values[i];
  }
}

}  // namespace
}  // namespace binary_kernels

template <typename T>
void run_binary_grad(CpuDevice& device, const BroadcastNest& nest, const BinaryGradLoops<T>& loops,
                     size_t operand, const T* x, const T* y, const T* dout, T* out, int64_t size) {
  using namespace binary_kernels;
  const auto stride = nest.run_stride();
  const BinaryGradLoop<T> loop = stride[kOfX] == 0   ? loops.x_once
                                 : stride[kOfY] == 0 ? loops.y_once
                                                     : loops.both;
  using Offsets = BroadcastNest::Offsets;
  if (!is_repeated(nest, operand)) {
    nest.parallel_runs(device, operand, [&](const Offsets& at, int64_t count) {
      loop(x + at[kOfX], y + at[kOfY], dout + at[kOfOut], out + at[operand], count);
    });
    return;
  }
  std::fill_n(out, size, T(0));
  nest.parallel_runs(device, operand, [&](const Offsets& at, int64_t count) {
    constexpr int64_t kPiece = 512;
    std::array<T, kPiece> piece;
    for (int64_t begin = 0; begin < count; begin += kPiece) {
      const int64_t length = std::min(kPiece, count - begin);
      loop(x + at[kOfX] + begin * stride[kOfX], y + at[kOfY] + begin * stride[kOfY],
           dout + at[kOfOut] + begin, piece.data(), length);
      add_run(piece.data(), length, stride[operand] != 0, T(1),
              out + at[operand] + begin * stride[operand]);
    }
  });
}

template <typename T>
void run_copied_grad(CpuDevice& device, const BroadcastNest& nest, size_t operand, bool negative,
                     const T* dout, T* out, int64_t size) {
  using namespace binary_kernels;
  const bool advances = nest.run_stride()[operand] != 0;
  const T factor = negative ? T(-1) : T(1);
  using Offsets = BroadcastNest::Offsets;
  if (!is_repeated(nest, operand)) {
    if (out == dout && !negative) return;
    nest.parallel_runs(device, operand, [&](const Offsets& at, int64_t count) {
      const T* const from = dout + at[kOfOut];
      T* const to = out + at[operand];
      for (int64_t i = 0; i < count; ++i) to[i] = factor * from[i];
    });
    return;
  }
  std::fill_n(out, size, T(0));
  nest.parallel_runs(device, operand, [&](const Offsets& at, int64_t count) {
    add_run(dout + at[kOfOut], count, advances, factor, out + at[operand]);
  });
}

template void run_binary_grad(CpuDevice&, const BroadcastNest&, const BinaryGradLoops<float>&,
                              size_t, const float*, const float*, const float*, float*, int64_t);
template void run_binary_grad(CpuDevice&, const BroadcastNest&, const BinaryGradLoops<double>&,
                              size_t, const double*, const double*, const double*, double*,
                              int64_t);
template void run_copied_grad(CpuDevice&, const BroadcastNest&, size_t, bool, const float*, float*,
                              int64_t);
template void run_copied_grad(CpuDevice&, const BroadcastNest&, size_t, bool, const double*,
                              double*, int64_t);

StatusOr<BinaryOperands> binary_operands(const KernelContext& ctx, const BinaryArgs& args) {
  const Tensor* const y = ctx.find_in(args.y);
  if (y == nullptr) return ctx.error("Y must be a dense tensor");
  BinaryOperands on{ctx.find_in(args.x), y, nullptr};
  if (on.x != nullptr) {
    on.out = &ctx.out(args.out);
  } else if (const auto* const rows = ctx.in_value(args.x).get_if<SelectedRows>()) {
    // Old programs scale sparse gradients this way.
    if (y->numel() != 1)
      return ctx.error("Y must have one element where X has selected rows, found {}", describe(*y));
    auto& out = ctx.out_value(args.out).as<SelectedRows>();
    if (&out != rows) {
      out.rows = rows->rows;
      out.height = rows->height;
      MILLRACE_RETURN_IF_ERROR(out.value.resize(rows->value.dtype(), rows->value.dims()));
    }
    on.x = &rows->value;
    on.out = &out.value;
  } else {
    return ctx.error("X must be a dense tensor or selected rows");
  }
  if (on.x->dtype() != y->dtype())
    return ctx.error("X and Y must have one element type, found {} and {}", describe(*on.x),
                     describe(*y));
  return on;
}

StatusOr<BinaryGradInputs> binary_grad_inputs(const KernelContext& ctx, const BinaryGradArgs& args,
                                              BroadcastCache& cache) {
  const Tensor* const x = ctx.find_in(args.x);
  const Tensor* const y = ctx.find_in(args.y);
  const Tensor* const dout = ctx.find_in(args.dout);
  if (dout == nullptr || (args.x && x == nullptr) || (args.y && y == nullptr))
    return ctx.error("the inputs must be dense tensors");
  BinaryGradInputs in{nullptr, nullptr, nullptr, nullptr, wide_type(dout->dtype())};
  // Programs may omit X if it has the shape of the result.
  const llvm::ArrayRef<int64_t> x_dims = x == nullptr ? dout->dims() : x->dims();
  const llvm::ArrayRef<int64_t> y_dims = y == nullptr ? dout->dims() : y->dims();
  MILLRACE_ASSIGN_OR_RETURN(in.nest, cache.get(x_dims, y_dims, args.axis));
  if (in.nest->count() != dout->numel()) {
    return ctx.error("the gradient must have {} elements, as many as the result, found {}",
                     in.nest->count(), describe(*dout));
  }
  for (const auto& [arg, dims] : {std::pair{args.dx, x_dims}, std::pair{args.dy, y_dims}}) {
    const Tensor* const out = ctx.find_out(arg);
    if (out != nullptr && (out->dims() != dims || out->dtype() != dout->dtype()))
      return ctx.error("the gradient of an operand is {}, expected the shape of the operand",
                       describe(*out));
  }
  const auto load = [&](const Tensor* tensor, int slot) -> StatusOr<const std::byte*> {
    if (tensor == nullptr) return static_cast<const std::byte*>(nullptr);
    return elements_as(ctx.device(), *tensor, in.dtype, slot);
  };
  MILLRACE_ASSIGN_OR_RETURN(in.x, load(x, 0));
  MILLRACE_ASSIGN_OR_RETURN(in.y, load(y, 1));
  MILLRACE_ASSIGN_OR_RETURN(in.dout, load(dout, 2));
  return in;
}

namespace binary_kernels {
namespace {

// True if the formula maps zeros to 0, so that padding stays 0.
bool keeps_zero(const BinaryLoops<float, float>& loops) {
  const float zero = 0;
  float result = 1;
  loops.both(&zero, &zero, &result, 1);
  return result == 0;
}

// True if Y has one element for each channel of X, dim 1.
bool is_by_channel(const Tensor& x, const Tensor& y, int64_t axis) {
  if (y.layout() != nullptr || x.rank() < 3 || y.rank() == 0 || y.numel() != x.dim(1)) return false;
  // [C] at axis 1, or [C, 1, ...] up to the last dim
  const bool rest_is_one =
      std::all_of(y.dims().begin() + 1, y.dims().end(), [](int64_t dim) { return dim == 1; });
  if (y.dim(0) == x.dim(1) && rest_is_one)
    return axis == 1 || (axis == -1 && y.rank() + 1 == x.rank());
  return axis <= 0 && y.rank() == x.rank() && y.dim(0) == 1 && y.dim(1) == x.dim(1) &&
         std::all_of(y.dims().begin() + 2, y.dims().end(), [](int64_t dim) { return dim == 1; });
}

// Y is repeated along the pixels of a chunk that fits in the L1 cache.
Status run_by_channel(const KernelContext& ctx, const ChannelBlocks& l, const Tensor& x,
                      const Tensor& y, const BinaryLoops<float, float>& loops, Tensor& out) {
  constexpr int64_t kPiece = 1024;
  const int64_t pixels = std::clamp<int64_t>(kPiece / l.lanes, 1, std::max<int64_t>(l.inner, 1));
  const int64_t piece = pixels * l.lanes;
  MILLRACE_ASSIGN_OR_RETURN(
      std::byte* const memory,
      ctx.device().scratch(static_cast<size_t>(l.blocks * piece) * sizeof(float)));
  auto* const repeated = reinterpret_cast<float*>(memory);
  std::fill_n(repeated, l.blocks * piece, 0.0F);
  for (int64_t c = 0; c < l.channels; ++c) {
    float* const to = repeated + c / l.lanes * piece + c % l.lanes;
    for (int64_t i = 0; i < pixels; ++i) to[i * l.lanes] = y.data<float>()[c];
  }
  const int64_t plane = l.inner * l.lanes;
  const int64_t grain = std::max<int64_t>(kGrain / std::max<int64_t>(plane, 1), 1);
  ctx.device().parallel_for(l.outer * l.blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t at = 0; at < plane; at += piece) {
        loops.both(stored<float>(x) + i * plane + at, repeated + i % l.blocks * piece,
                   stored<float>(out) + i * plane + at, std::min(piece, plane - at));
      }
    }
  });
  return Ok();
}

}  // namespace
}  // namespace binary_kernels

StatusOr<bool> run_in_layout(const KernelContext& ctx, const BinaryArgs& args,
                             const BinaryLoops<float, float>& loops) {
  using namespace binary_kernels;
  const Tensor* const x = ctx.find_in(args.x);
  const Tensor* const y = ctx.find_in(args.y);
  if (x == nullptr || y == nullptr) return false;
  Tensor& out = ctx.out(args.out);
  const Tensor& first = x->layout() != nullptr ? *x : *y;
  const bool fits = x->dtype() == DType::kFloat32 && y->dtype() == DType::kFloat32 &&
                    out.dtype() == DType::kFloat32 && out.dims() == first.dims() &&
                    (!is_padded(first) || keeps_zero(loops));
  const std::optional<ChannelBlocks> blocks = channel_blocks(*x);
  const bool by_channel = fits && blocks && is_by_channel(*x, *y, args.axis);
  if (!by_channel && !(fits && x->dims() == y->dims())) {
    MILLRACE_RETURN_IF_ERROR(bring_to_plain(ctx, {args.x, args.y}));
    return false;
  }
  const LayoutPtr layout = first.layout();
  const Dims dims(out.dims().begin(), out.dims().end());
  if (!by_channel) {
    MILLRACE_RETURN_IF_ERROR(bring_to(ctx, args.x, layout));
    MILLRACE_RETURN_IF_ERROR(bring_to(ctx, args.y, layout));
  }
  MILLRACE_RETURN_IF_ERROR(out.resize(DType::kFloat32, dims, layout));
  if (by_channel) {
    MILLRACE_RETURN_IF_ERROR(run_by_channel(ctx, *blocks, *x, *y, loops, out));
    return true;
  }
  ctx.device().parallel_for(stored_count(out), kGrain, [&](int64_t begin, int64_t end) {
    loops.both(stored<float>(*x) + begin, stored<float>(*y) + begin, stored<float>(out) + begin,
               end - begin);
  });
  return true;
}

Status check_divisors(DType dtype, const std::byte* y, int64_t count) {
  if (dtype != DType::kInt32 && dtype != DType::kInt64) return Ok();
  return dispatch<IntTypes>(dtype, [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    const T* const values = reinterpret_cast<const T*>(y);
    const T* const zero = std::find(values, values + count, T(0));
    if (zero == values + count) return Ok();
    return KernelContext::error("division by zero: element {} of Y is 0", zero - values);
  });
}

}  // namespace millrace::kernels
