#include "kernels/cpu/unary.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/layouts.h"
#include "kernels/cpu/nest.h"
#include "kernels/dispatch.h"

namespace millrace::kernels::detail {
namespace unary_kernels {
namespace {

struct UnaryOperands {
  const Tensor* v;
  const Tensor* dout;
  Tensor* out;
};

template <typename T>
Status run_loop(CpuDevice& device, const UnaryOperands& on, UnaryLoop<T> loop,
                const void* formula) {
  const T* const v = on.v == nullptr ? nullptr : stored<T>(*on.v);
  const T* const dout = on.dout == nullptr ? nullptr : stored<T>(*on.dout);
  T* const out = stored<T>(*on.out);
  device.parallel_for(stored_count(*on.out), kGrain, [&](int64_t begin, int64_t end) {
    loop(formula, v == nullptr ? nullptr : v + begin, dout == nullptr ? nullptr : dout + begin,
         out + begin, end - begin);
  });
  return Ok();
}

// Converts chunks that fit in the L1 cache.
template <typename T>
Status run_halves(CpuDevice& device, const UnaryOperands& on, UnaryLoop<float> loop,
                  const void* formula) {
  constexpr int64_t kPiece = 512;
  using Piece = std::array<float, kPiece>;
  const auto load = [](const Tensor* from, int64_t at, int64_t count, Piece& to) {
    if (from != nullptr) std::copy_n(stored<T>(*from) + at, count, to.begin());
  };
  device.parallel_for(stored_count(*on.out), kGrain, [&](int64_t begin, int64_t end) {
    Piece v;
    Piece dout;
    Piece out;
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t count = std::min(kPiece, end - at);
      load(on.v, at, count, v);
      load(on.dout, at, count, dout);
      loop(formula, v.data(), dout.data(), out.data(), count);
      std::copy_n(out.begin(), count, stored<T>(*on.out) + at);
    }
  });
  return Ok();
}

Status check(const UnaryOperands& on) {
  for (const Tensor* const operand : {on.v, on.dout}) {
    if (operand == nullptr) continue;
    if (operand->dtype() != on.out->dtype() || operand->numel() != on.out->numel()) {
      return KernelContext::error("operands must have the type and size of the result {}, found {}",
                                  describe(*on.out), describe(*operand));
    }
  }
  return Ok();
}

Status run_dense(const KernelContext& ctx, const UnaryOperands& on, const UnaryLoops& loops,
                 const void* formula) {
  if (const Status status = check(on); !status.ok()) return status;
  CpuDevice& device = ctx.device();
  switch (on.out->dtype()) {
    case DType::kFloat32:
      return run_loop<float>(device, on, loops.f32, formula);
    case DType::kFloat64:
      return run_loop<double>(device, on, loops.f64, formula);
    case DType::kFloat16:
      return run_halves<Float16>(device, on, loops.f32, formula);
    case DType::kBfloat16:
      return run_halves<Bfloat16>(device, on, loops.f32, formula);
    case DType::kInt32:
      if (loops.i32 != nullptr) return run_loop<int32_t>(device, on, loops.i32, formula);
      break;
    case DType::kInt64:
      if (loops.i64 != nullptr) return run_loop<int64_t>(device, on, loops.i64, formula);
      break;
    default:
      break;
  }
  return {StatusCode::kUnimplemented,
          fmt::format("no kernel for element type {}", dtype_name(on.out->dtype()))};
}

// Old programs clip and scale sparse gradients with elementwise ops; those act on the rows present.
Status run_rows(const KernelContext& ctx, const UnaryArgs& args, const UnaryLoops& loops,
                const void* formula) {
  const auto* const x = args.v ? ctx.in_value(args.v).get_if<SelectedRows>() : nullptr;
  if (x == nullptr || args.dout) return ctx.error("the inputs must be dense tensors");
  auto& out = ctx.out_value(args.out).as<SelectedRows>();
  if (&out != x) {
    out.rows = x->rows;
    out.height = x->height;
    MILLRACE_RETURN_IF_ERROR(out.value.resize(x->value.dtype(), x->value.dims()));
  }
  return run_dense(ctx, {&x->value, nullptr, &out.value}, loops, formula);
}

// True if the formula maps 0 to 0, so that padding stays 0.
bool keeps_zero(const UnaryLoops& loops, const void* formula) {
  const float zero = 0;
  float result = 1;
  loops.f32(formula, &zero, &zero, &result, 1);
  return result == 0;
}

// Converts the operands to one layout, that of the first operand which has one; the result gets it
// too.
Status follow_layout(const KernelContext& ctx, const UnaryArgs& args, const UnaryOperands& on,
                     const UnaryLoops& loops, const void* formula) {
  const Tensor& first = on.v != nullptr && on.v->layout() != nullptr ? *on.v : *on.dout;
  const bool alike = on.v == nullptr || on.dout == nullptr || on.v->dims() == on.dout->dims();
  const bool follows = alike && on.out->dtype() == first.dtype() &&
                       on.out->dims() == first.dims() &&
                       (!is_padded(first) || keeps_zero(loops, formula));
  const LayoutPtr layout = follows ? first.layout() : nullptr;
  MILLRACE_RETURN_IF_ERROR(bring_to(ctx, args.v, layout));
  MILLRACE_RETURN_IF_ERROR(bring_to(ctx, args.dout, layout));
  const Dims dims(on.out->dims().begin(), on.out->dims().end());
  return follows ? on.out->resize(on.out->dtype(), dims, layout) : Ok();
}

}  // namespace
}  // namespace unary_kernels

UnaryArgs value_args(const KernelSetup& op) {
  const UnaryArgs args{op.input("X"), {}, op.output("Out")};
  op.accept_layout(args.v);
  return args;
}

StatusOr<UnaryArgs> grad_args(const KernelSetup& op, GradSource from) {
  UnaryArgs args{{}, op.input("Out@GRAD"), op.output("X@GRAD")};
  if (!args.dout) return op.error("input 'Out@GRAD' is missing");
  op.accept_layout(args.dout);
  if (from == GradSource::kNothing) return args;
  const char* const slot = from == GradSource::kX ? "X" : "Out";
  args.v = op.input(slot);
  if (!args.v) return op.error("input '{}' is missing, which the gradient is computed from", slot);
  op.accept_layout(args.v);
  return args;
}

Status run_unary(const KernelContext& ctx, const UnaryArgs& args, const UnaryLoops& loops,
                 const void* formula) {
  using namespace unary_kernels;
  const Tensor* const v = ctx.find_in(args.v);
  const Tensor* const dout = ctx.find_in(args.dout);
  if ((args.v && v == nullptr) || (args.dout && dout == nullptr))
    return run_rows(ctx, args, loops, formula);
  const UnaryOperands on{v, dout, &ctx.out(args.out)};
  if ((v != nullptr && v->layout() != nullptr) || (dout != nullptr && dout->layout() != nullptr))
    MILLRACE_RETURN_IF_ERROR(follow_layout(ctx, args, on, loops, formula));
  return run_dense(ctx, on, loops, formula);
}

Status run_unary_on(const KernelContext& ctx, Tensor& tensor, const UnaryLoops& loops,
                    const void* formula) {
  return unary_kernels::run_dense(ctx, {&tensor, nullptr, &tensor}, loops, formula);
}

}  // namespace millrace::kernels::detail
