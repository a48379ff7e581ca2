#include "kernels/gpu/ops/updates.h"

#include <algorithm>

namespace millrace::gpu {

UpdateArgs::UpdateArgs(const KernelSetup& op,
                       std::initializer_list<std::pair<const char*, const char*>> slots, size_t k)
    : memory(&memory_of(op)),
      param(op.input("Param", k)),
      grad(op.input("Grad", k)),
      rate(op.input("LearningRate", op.inputs("LearningRate").count > 1 ? k : 0)),
      param_out(op.output("ParamOut", k)) {
  for (const auto& [in, out] : slots)
    states[state_count++] = {op.input(in, k), op.output(out, k), in};
}

StatusOr<UpdateOperands> find_operands(const KernelContext& ctx, const UpdateArgs& args) {
  UpdateOperands on{};
  MILLRACE_ASSIGN_OR_RETURN(on.param, needed_here(ctx, args.param, "Param"));
  if (on.param->numel() == 0) return refuse("Param {}", describe(*on.param));
  if (!args.grad) return refuse("Grad is missing");
  const Value& grad = ctx.in_value(args.grad);
  on.grad = grad.get_if<Tensor>();
  on.rows = grad.get_if<SelectedRows>();
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const out, output_like(ctx, args.param_out, *on.param));
  if (out == nullptr) return refuse("ParamOut is missing");
  on.out = floats(out);
  if (args.rate) {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const rate,
                              needed_here(ctx, args.rate, "LearningRate"));
    MILLRACE_RETURN_IF_ERROR(all_floats({rate}));
    if (rate->numel() != 1) return refuse("LearningRate {}", describe(*rate));
    on.rate = floats(rate);
  }
  MILLRACE_RETURN_IF_ERROR(all_floats({on.param, on.grad}));
  if (on.rows != nullptr) {
    const Tensor& values = on.rows->value;
    const auto count = static_cast<int64_t>(on.rows->rows.size());
    const int64_t height = on.param->rank() == 0 ? 0 : on.param->dim(0);
    if (height == 0 || on.param->numel() >= int64_t{1} << 31 || out->raw() != on.param->raw())
      return refuse("rows for Param {}", describe(*on.param));
    if (count > 0 && (values.dtype() != DType::kFloat32 ||
                      values.numel() != count * (on.param->numel() / height)))
      return refuse("Grad {} for Param {}", describe(values), describe(*on.param));
    for (const int64_t row : on.rows->rows) {
      if (row < 0 || row >= height) return refuse("Grad has row {} of {}", row, height);
    }
  } else if (on.grad == nullptr || on.grad->numel() != on.param->numel()) {
    return refuse("Grad {} for Param {}", describe(grad), describe(*on.param));
  }
  for (size_t k = 0; k < args.state_count; ++k) {
    const UpdateArgs::State& state = args.states[k];
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, state.in, state.slot));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, state.out, *from));
    MILLRACE_RETURN_IF_ERROR(all_floats({from}));
    if (to == nullptr || from->numel() != on.param->numel() ||
        (on.rows != nullptr && to->raw() != from->raw()))
      return refuse("{} {}", state.slot, describe(*from));
    on.states[k] = floats(from);
    on.states_out[k] = floats(to);
  }
  return on;
}

StatusOr<PowerPointers> find_power(const KernelContext& ctx, ArgIndex in, ArgIndex out) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, in, "a power"));
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, out, *from));
  MILLRACE_RETURN_IF_ERROR(all_floats({from}));
  if (from->numel() != 1) return refuse("a power is {}", describe(*from));
  return PowerPointers{floats(from), floats(to)};
}

Status refuse_extras(const KernelSetup& op, std::initializer_list<const char*> slots) {
  for (const char* const slot : slots) {
    if (op.inputs(slot).count > 0) return refuse("an update with {} runs on the CPU", slot);
  }
  return Ok();
}

}  // namespace millrace::gpu
