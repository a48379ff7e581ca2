#include "kernels/cpu/optimizer/update.h"

#include <algorithm>
#include <cstring>

#include "framework/op_attrs.h"

namespace millrace::kernels::optimizer {
namespace update_kernels {
namespace {

bool is_half(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16;
}

// Returns the output, initialized with the value of the input.
StatusOr<Tensor*> in_place(const KernelContext& ctx, ArgIndex in, ArgIndex out, const char* slot) {
  const Tensor* const from = ctx.find_in(in);
  if (from == nullptr || !from->initialized())
    return ctx.error("{} must be a tensor that holds values", slot);
  Tensor* const to = ctx.find_out(out);
  if (to == nullptr) return ctx.error("{}Out is missing", slot);
  if (!to->initialized() || !to->shares_memory_with(*from))
    MILLRACE_RETURN_IF_ERROR(to->copy_from(*from));
  return to;
}

Status check_like(const KernelContext& ctx, const Tensor& param, const Tensor& other,
                  const char* slot, bool states_are_float) {
  if (other.numel() != param.numel()) {
    return ctx.error("{} must have the shape of Param {}, found {}", slot, describe(param),
                     describe(other));
  }
  const bool wide = states_are_float && other.dtype() == DType::kFloat32;
  if (other.dtype() != param.dtype() && !wide) {
    return ctx.error("{} must have the element type of Param, found {} and {}", slot,
                     describe(other), describe(param));
  }
  return Ok();
}

Status check_rows(const KernelContext& ctx, const Tensor& param, const SelectedRows& rows) {
  if (rows.rows.empty()) return Ok();
  if (param.rank() == 0 || rows.height != param.dim(0) ||
      row_width(rows.value) != row_width(param) || rows.value.dtype() != param.dtype()) {
    return ctx.error("Grad must have rows of Param {}, found rows {} of height {}", describe(param),
                     describe(rows.value), rows.height);
  }
  return Ok();
}

// Converts all tensors to the layout of the parameter, or to row-major order if the formula would
// see padding or converted elements.
Status follow_layout(const KernelContext& ctx, const UpdateSlots& slots, const UpdateTensors& t) {
  const bool follows =
      t.rows == nullptr && !is_padded(*t.param) && t.master == nullptr &&
      t.grad->dims() == t.param->dims() && t.grad->dtype() == t.param->dtype() &&
      std::all_of(t.states.begin(), t.states.end(), [&](const Tensor* state) {
        return state->dims() == t.param->dims() && state->dtype() == t.param->dtype();
      });
  if (!follows) MILLRACE_RETURN_IF_ERROR(bring_to(ctx.device(), *t.param, nullptr));
  for (Tensor* const state : t.states)
    MILLRACE_RETURN_IF_ERROR(bring_to(ctx.device(), *state, t.param->layout()));
  return bring_to(ctx, slots.grad, t.param->layout());
}

// The devices convert their tensors to a common order in UpdateGroup::meet().
Status join_group(const KernelContext& ctx, const UpdateSlots& slots, UpdateTensors& t) {
  t.group = ctx.device().library<UpdateGroupOfDevice>().group;
  if (t.group == nullptr)
    return ctx.error(
        "the op shares its update with other devices, but this device belongs to no group");
  if (t.rows != nullptr || t.master != nullptr || is_half(t.param->dtype()))
    return ctx.error("a shared update of several devices needs a dense gradient of f32 or f64");
  t.own = {slots.shared, t.param, &ctx.stored_in(slots.grad), {}, t.rate};
  return Ok();
}

bool any_layout(const UpdateTensors& t) {
  return t.param->layout() != nullptr || (t.grad != nullptr && t.grad->layout() != nullptr) ||
         std::any_of(t.states.begin(), t.states.end(),
                     [](const Tensor* state) { return state->layout() != nullptr; });
}

}  // namespace
}  // namespace update_kernels

void accept_layouts(const KernelSetup& op, const UpdateSlots& slots) {
  op.accept_layout(slots.param);
  op.accept_layout(slots.grad);
  for (const auto& [in, out] : slots.states) op.accept_layout(in);
}

UpdateSlots update_slots(const KernelSetup& op,
                         std::initializer_list<std::pair<const char*, const char*>> states,
                         size_t k) {
  UpdateSlots slots;
  slots.param = op.input("Param", k);
  slots.grad = op.input("Grad", k);
  slots.rate = op.input("LearningRate", k);
  if (!slots.rate)
    slots.rate = op.input("LearningRate");  // one learning rate may serve all parameters
  slots.param_out = op.output("ParamOut", k);
  const bool has_master = op.def().find_attr("multi_precision") != nullptr;
  if (has_master && op.attr<bool>("multi_precision")) {
    slots.wants_master = true;
    slots.master = op.input("MasterParam", k);
    slots.master_out = op.output("MasterParamOut", k);
  }
  for (const auto& [input, output] : states)
    slots.states.emplace_back(op.input(input, k), op.output(output, k));
  slots.shared = get_attr_or<int32_t>(op.op(), "shared_update", -1);
  return slots;
}

Status in_parameter(Status status, llvm::ArrayRef<std::string> params, size_t k) {
  Location place;
  place.slot = "Param";
  place.slot_index = static_cast<int>(k);
  place.var = params[k];
  return std::move(status).at(std::move(place));
}

std::vector<std::string> parameter_names(const KernelSetup& op) {
  std::vector<std::string> names;
  for (const llvm::StringRef name : op.op().input("Param")) names.push_back(name.str());
  return names;
}

StatusOr<UpdateTensors> update_tensors(const KernelContext& ctx, const UpdateSlots& slots) {
  using namespace update_kernels;
  UpdateTensors t;
  MILLRACE_ASSIGN_OR_RETURN(t.param, in_place(ctx, slots.param, slots.param_out, "Param"));
  const bool half = is_half(t.param->dtype());
  if (half && slots.wants_master && !slots.master)
    return ctx.error("attribute 'multi_precision' is set, and MasterParam is missing");
  if (half && slots.master) {
    MILLRACE_ASSIGN_OR_RETURN(t.master,
                              in_place(ctx, slots.master, slots.master_out, "MasterParam"));
    MILLRACE_RETURN_IF_ERROR(
        check_like(ctx, *t.param, *t.master, "MasterParam", /*states_are_float=*/true));
  }
  for (const auto& [in, out] : slots.states) {
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const state, in_place(ctx, in, out, "a state"));
    MILLRACE_RETURN_IF_ERROR(check_like(ctx, *t.param, *state, "a state", half));
    t.states.push_back(state);
  }
  if (!slots.grad) return ctx.error("Grad is missing");
  t.rows = ctx.in_value(slots.grad).get_if<SelectedRows>();
  if (t.rows != nullptr) {
    MILLRACE_RETURN_IF_ERROR(check_rows(ctx, *t.param, *t.rows));
  } else {
    t.grad = ctx.find_in(slots.grad);
    if (t.grad == nullptr) return ctx.error("Grad must be a tensor or selected rows");
    MILLRACE_RETURN_IF_ERROR(check_like(ctx, *t.param, *t.grad, "Grad", half));
  }
  if (slots.rate || !slots.default_rate) {
    const Tensor* const rate = ctx.find_in(slots.rate);
    if (rate == nullptr) return ctx.error("LearningRate is missing");
    MILLRACE_ASSIGN_OR_RETURN(t.rate, first_number(*rate, "LearningRate"));
  } else {
    t.rate = *slots.default_rate;
  }
  if (slots.shared >= 0) {
    MILLRACE_RETURN_IF_ERROR(join_group(ctx, slots, t));
    return t;
  }
  if (any_layout(t)) MILLRACE_RETURN_IF_ERROR(follow_layout(ctx, slots, t));
  return t;
}

}  // namespace millrace::kernels::optimizer
