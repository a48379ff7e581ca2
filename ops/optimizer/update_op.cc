#include "ops/optimizer/update_op.h"

namespace millrace::ops {
namespace update_op_ops {
namespace {

bool is_scalar_slot(llvm::StringRef slot) {
  return slot == "LearningRate" || slot.contains("Pow") || slot == "SkipUpdate" ||
         slot.endswith("Tensor");
}

// Param and the tensor must have the same rank and row size. The number of rows is not compared:
// pserver programs of the original declare clipped gradients and some states of a sliced parameter
// with the rows of the whole one.
Status check_rows_alike(const InferContext& ctx, llvm::StringRef slot, size_t index) {
  const VarMeta& param = ctx.input("Param", index);
  const VarMeta& other = ctx.input(slot, index);
  if (!dims_known(param) || !dims_known(other)) return Ok();
  bool alike = param.rank() == other.rank();
  for (size_t i = 1; alike && i < param.rank(); ++i)
    alike = dims_agree(param.dims[i], other.dims[i]);
  if (alike) return Ok();
  return ctx.error("Param and {} must have the same shape, found {} and {}",
                   std::string_view(slot.data(), slot.size()), dims_text(param.dims),
                   dims_text(other.dims));
}

// Every slot besides Param either has one element or the shape of Param, var by var.
Status check_shapes_of(const InferContext& ctx, const SlotDef& slot) {
  const size_t count = ctx.input_count(slot.name);
  const size_t params = ctx.input_count("Param");
  // One rate may serve all parameters.
  if (count > 0 && count != params && !(slot.name == "LearningRate" && count == 1)) {
    return ctx.error("{} must have the same number of vars as Param, found {} and {}",
                     std::string_view(slot.name.data(), slot.name.size()), count, params);
  }
  for (size_t i = 0; i < count; ++i) {
    if (is_scalar_slot(slot.name)) {
      MILLRACE_RETURN_IF_ERROR(check_elements(ctx, slot.name, 1, i));
    } else if (ctx.input(slot.name, i).kind != VarKind::kSelectedRows) {
      MILLRACE_RETURN_IF_ERROR(check_rows_alike(ctx, slot.name, i));
    }
  }
  return Ok();
}

// The input that an output replaces: "Moment1Out" is "Moment1", "SquaredAccumOut" is
// "SquaredAccumulator".
const SlotDef* replaced_input(const OpDef& def, llvm::StringRef output) {
  const llvm::StringRef stem = output.drop_back(3);
  if (const SlotDef* const exact = def.find_input(stem)) return exact;
  for (const SlotDef& slot : def.inputs()) {
    if (slot.name.startswith(stem)) return &slot;
  }
  return nullptr;
}

Status infer(InferContext& ctx) {
  for (const SlotDef& slot : ctx.def().inputs()) {
    if (slot.name != "Param") MILLRACE_RETURN_IF_ERROR(check_shapes_of(ctx, slot));
  }
  for (const SlotDef& slot : ctx.def().outputs()) {
    const SlotDef* const source = replaced_input(ctx.def(), slot.name);
    if (source != nullptr) copy_each(ctx, source->name, slot.name);
  }
  return Ok();
}

OpDef make(llvm::StringRef type, llvm::StringRef doc, llvm::ArrayRef<StateSlots> states,
           Arity arity, Arity rate) {
  OpDef def(type);
  def.doc(doc)
      .input("Param", "parameter", arity)
      .input("Grad", "gradient, dense or sparse rows", arity)
      .input("LearningRate", "one element", rate);
  for (const StateSlots& state : states) {
    def.input(state.input, state.doc, state.arity == Arity::kOne ? arity : state.arity);
  }
  def.output("ParamOut", "Param after the update, the same var", arity)
      .inplace("Param", "ParamOut");
  for (const StateSlots& state : states) {
    // Fluid 1.x updates the powers of the betas with separate ops.
    const bool powers = llvm::StringRef(state.input).contains("Pow");
    const Arity optional = arity == Arity::kOne ? Arity::kOptional : Arity::kAny;
    def.output(state.output, "the state after the update, the same var",
               powers || state.arity != Arity::kOne ? optional : arity)
        .inplace(state.input, state.output);
  }
  def.infer(infer);
  return def;
}

}  // namespace
}  // namespace update_op_ops

OpDef update_op(llvm::StringRef type, llvm::StringRef doc, llvm::ArrayRef<StateSlots> states,
                Arity rate) {
  return update_op_ops::make(type, doc, states, Arity::kOne, rate);
}

OpDef merged_update_op(llvm::StringRef type, llvm::StringRef doc,
                       llvm::ArrayRef<StateSlots> states) {
  return update_op_ops::make(type, doc, states, Arity::kMany, Arity::kMany);
}

OpDef& with_master_param(OpDef& def, Arity arity) {
  return def.input("MasterParam", "single-precision copy of Param", arity)
      .output("MasterParamOut", "MasterParam after the update, the same var", arity)
      .attr("multi_precision", false, "update MasterParam and round it into Param")
      .inplace("MasterParam", "MasterParamOut");
}

}  // namespace millrace::ops
