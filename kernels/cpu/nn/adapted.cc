#include "kernels/cpu/nn/adapted.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/layouts.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"

namespace millrace::kernels {
namespace {

// The arguments of one call, some of which are replaced by substitutes.
class AdaptedCall {
 public:
  AdaptedCall(size_t inputs, size_t outputs)
      : inputs_(inputs), outputs_(outputs), stand_ins_(inputs + outputs) {}

  static ArgIndex argument(size_t k) { return {static_cast<int32_t>(k)}; }
  static bool has_input(const KernelContext& ctx, size_t k) {
    return ctx.has_in({static_cast<int32_t>(k), 1}, 0);
  }
  static bool has_output(const KernelContext& ctx, size_t k) {
    return ctx.has_out({static_cast<int32_t>(k), 1}, 0);
  }
  [[nodiscard]] size_t inputs() const { return inputs_; }
  [[nodiscard]] size_t outputs() const { return outputs_; }
  // The substitute for an input or output of the op.
  Value& input(size_t k) { return stand_ins_[k]; }
  Value& output(size_t k) { return stand_ins_[inputs_ + k]; }

  // Calls the kernel with substitutes for all inputs, and for those outputs that `replaced` marks.
  Status run(const KernelContext& ctx, const Kernel& kernel, const std::vector<bool>& replaced) {
    std::vector<Value*> table;
    std::vector<int32_t> in;
    std::vector<int32_t> out;
    const auto enter = [&](Value* value, bool present, std::vector<int32_t>& places) {
      places.push_back(present ? static_cast<int32_t>(table.size()) : -1);
      if (present) table.push_back(value);
    };
    for (size_t k = 0; k < inputs_; ++k) enter(&input(k), has_input(ctx, k), in);
    for (size_t k = 0; k < outputs_; ++k) {
      const bool present = has_output(ctx, k);
      Value* const own = present && !replaced[k] ? &ctx.out_value(argument(k)) : &output(k);
      enter(own, present, out);
    }
    return kernel(KernelContext(table.data(), in, out, ctx.device()));
  }

 private:
  size_t inputs_;
  size_t outputs_;
  std::vector<Value> stand_ins_;
};

std::shared_ptr<AdaptedCall> adapted_call(const KernelSetup& op) {
  size_t inputs = 0;
  size_t outputs = 0;
  for (const Slot& slot : op.op().inputs()) inputs += slot.args.size();
  for (const Slot& slot : op.op().outputs()) outputs += slot.args.size();
  return std::make_shared<AdaptedCall>(inputs, outputs);
}

bool is_half(const Tensor* tensor) {
  return tensor != nullptr && tensor->initialized() &&
         (tensor->dtype() == DType::kFloat16 || tensor->dtype() == DType::kBfloat16);
}

Status widen_half(const Tensor& from, Tensor& to) {
  MILLRACE_RETURN_IF_ERROR(to.resize(DType::kFloat32, from.dims()));
  to.set_lod(from.lod());
  return convert(from.dtype(), from.raw(), DType::kFloat32, to.raw(), from.numel());
}

// Shares an unchanged input with the inner call.
Status pass_input(const KernelContext& ctx, size_t k, Value& to) {
  const Value& value = ctx.in_value(AdaptedCall::argument(k));
  if (const auto* const tensor = value.get_if<Tensor>()) {
    to.as<Tensor>() = tensor->share();
    return Ok();
  }
  if (!value.initialized()) {
    to.clear();
    return Ok();
  }
  return {StatusCode::kUnimplemented, "no kernel for 16-bit floats beside " + describe(value)};
}

// Input k, if it is a 16-bit tensor; else null.
const Tensor* half_input(const KernelContext& ctx, size_t k) {
  const Tensor* const tensor =
      AdaptedCall::has_input(ctx, k) ? ctx.find_in(AdaptedCall::argument(k)) : nullptr;
  return is_half(tensor) ? tensor : nullptr;
}

// The type of the first 16-bit input.
std::optional<DType> half_type(const KernelContext& ctx, const AdaptedCall& call) {
  for (size_t k = 0; k < call.inputs(); ++k) {
    if (const Tensor* const tensor = half_input(ctx, k)) return tensor->dtype();
  }
  return std::nullopt;
}

Status run_widened(const KernelContext& ctx, const Kernel& kernel, DType half, AdaptedCall& call) {
  for (size_t k = 0; k < call.inputs(); ++k) {
    const Tensor* const narrow = half_input(ctx, k);
    if (narrow == nullptr) {
      if (AdaptedCall::has_input(ctx, k))
        MILLRACE_RETURN_IF_ERROR(pass_input(ctx, k, call.input(k)));
      continue;
    }
    if (narrow->dtype() != half) return ctx.error("f16 and bf16 in one op: {}", describe(*narrow));
    MILLRACE_RETURN_IF_ERROR(widen_half(*narrow, call.input(k).as<Tensor>()));
  }
  std::vector<bool> replaced(call.outputs());
  for (size_t k = 0; k < call.outputs(); ++k) {
    if (!AdaptedCall::has_output(ctx, k)) continue;
    const Tensor& own = ctx.out(AdaptedCall::argument(k));
    // an output that inference did not size has no type yet
    replaced[k] = !own.initialized() || is_half(&own);
    if (!replaced[k]) continue;
    auto& wide = call.output(k).as<Tensor>();
    wide.reset();
    if (own.initialized()) MILLRACE_RETURN_IF_ERROR(wide.resize(DType::kFloat32, own.dims()));
  }
  MILLRACE_RETURN_IF_ERROR(call.run(ctx, kernel, replaced));
  for (size_t k = 0; k < call.outputs(); ++k) {
    if (!replaced[k] || !AdaptedCall::has_output(ctx, k)) continue;
    auto& wide = call.output(k).as<Tensor>();
    if (!wide.initialized()) continue;
    MILLRACE_RETURN_IF_ERROR(bring_to(ctx.device(), wide, nullptr));
    Tensor& own = ctx.out(AdaptedCall::argument(k));
    const bool rounds = wide.dtype() == DType::kFloat32;
    MILLRACE_RETURN_IF_ERROR(own.resize(rounds ? half : wide.dtype(), wide.dims()));
    MILLRACE_RETURN_IF_ERROR(
        convert(wide.dtype(), wide.raw(), own.dtype(), own.raw(), wide.numel()));
  }
  return Ok();
}

// to = max(to, 0), in row-major order.
Status keep_above_zero(const KernelContext& ctx, Tensor& to) {
  MILLRACE_RETURN_IF_ERROR(bring_to(ctx.device(), to, nullptr));
  return dispatch<FloatTypes>(to.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    for (T& x : to.values<T>()) x = x > T(0) ? x : T(0);
    return Ok();
  });
}

// Clears the gradient where the rectified input is 0.
Status stop_at_zero(const KernelContext& ctx, const Tensor& rectified, Tensor& grad) {
  MILLRACE_RETURN_IF_ERROR(bring_to(ctx.device(), grad, nullptr));
  if (grad.numel() != rectified.numel() || grad.dtype() != rectified.dtype())
    return ctx.error("Input@GRAD must be {}, found {}", describe(rectified), describe(grad));
  return dispatch<FloatTypes>(grad.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < grad.numel(); ++i) {
      if (!(rectified.data<T>()[i] > T(0))) grad.data<T>()[i] = T(0);
    }
    return Ok();
  });
}

}  // namespace

Kernel computed_in_float(const KernelSetup& op, Kernel kernel) {
  return [call = adapted_call(op), kernel = std::move(kernel)](const KernelContext& ctx) -> Status {
    const std::optional<DType> half = half_type(ctx, *call);
    return half ? run_widened(ctx, kernel, *half, *call) : kernel(ctx);
  };
}

Kernel behind_relu(const KernelSetup& op, Kernel kernel) {
  const ArgIndex input = op.input("Input");
  const ArgIndex grad = op.output("Input@GRAD");
  return
      [=, call = adapted_call(op), kernel = std::move(kernel)](const KernelContext& ctx) -> Status {
        for (size_t k = 0; k < call->inputs(); ++k) {
          // copies: the kernel may reorder a stored filter in memory
          const Tensor* const from =
              AdaptedCall::has_input(ctx, k) ? ctx.find_in(AdaptedCall::argument(k)) : nullptr;
          if (from != nullptr && from->initialized())
            MILLRACE_RETURN_IF_ERROR(call->input(k).as<Tensor>().copy_from(*from));
        }
        MILLRACE_RETURN_IF_ERROR(needed(ctx, input, "Input").status());
        auto& rectified = call->input(static_cast<size_t>(input.index)).as<Tensor>();
        MILLRACE_RETURN_IF_ERROR(keep_above_zero(ctx, rectified));
        MILLRACE_RETURN_IF_ERROR(call->run(ctx, kernel, std::vector<bool>(call->outputs())));
        return grad ? stop_at_zero(ctx, rectified, ctx.out(grad)) : Ok();
      };
}

}  // namespace millrace::kernels
