#include "framework/names.h"
#include "framework/program.h"
#include "ops/grad_rules.h"
#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Ops that run a sub-block. Their gradient rules set the slots. append_backward() then builds the
// block of gradient ops, sets attribute sub_block to it, and removes output names that no op in it
// writes.
// Source: spec/executor.md section 5, spec/backward.md section 6.
namespace millrace::ops {
namespace {

using Strings = std::vector<std::string>;

Status check_one_bool(const InferContext& ctx, llvm::StringRef slot) {
  const VarMeta& condition = ctx.input(slot);
  if (!dims_known(condition)) return Ok();
  const int64_t count = dims_product(condition.dims);
  if (count >= 0 && count != 1) {
    return ctx.error("'{}' has shape {}, expected one element", slot.str(),
                     dims_text(condition.dims));
  }
  return Ok();
}

Status infer_while(InferContext& ctx) {
  return check_one_bool(ctx, "Condition");
}

Status infer_conditional(InferContext& ctx) {
  if (!ctx.attr<bool>("is_scalar_condition")) return Ok();
  return check_one_bool(ctx, "Cond");
}

// Each gradient has the meta of its forward var.
Status infer_while_grad(InferContext& ctx) {
  copy_each(ctx, "X", "X@GRAD");
  return Ok();
}

Status infer_conditional_grad(InferContext& ctx) {
  copy_each(ctx, "Input", "Input@GRAD");
  return Ok();
}

Status infer_recurrent_grad(InferContext& ctx) {
  copy_each(ctx, "inputs", "inputs@GRAD");
  copy_each(ctx, "initial_states", "initial_states@GRAD");
  copy_each(ctx, "parameters", "parameters@GRAD");
  return Ok();
}

// The outputs keep their declared shapes: their width is known only in the sub-block.
Status infer_recurrent(InferContext& ctx) {
  if (!ctx.attr<bool>("has_states")) {
    // programs that are older than the attribute lack it
    if (!ctx.op().has_attr("has_states") || ctx.input_count("initial_states") == 0) return Ok();
    return ctx.error("attribute 'has_states' is false, but 'initial_states' has {} vars",
                     ctx.input_count("initial_states"));
  }
  const size_t states = ctx.attr<Strings>("states").size();
  const size_t previous = ctx.attr<Strings>("ex_states").size();
  if (states != previous || states != ctx.input_count("initial_states")) {
    return ctx.error(
        "'initial_states' has {} vars, attribute 'ex_states' {} names and 'states' {}, "
        "expected the same number",
        ctx.input_count("initial_states"), previous, states);
  }
  return Ok();
}

StatusOr<std::vector<GradOp>> grad_while(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("X", /*keep_places=*/true);
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op("while_grad");
  op.input("X", ctx.input("X"))
      .input("Out", ctx.output("Out"))
      .input("Out@GRAD", ctx.output_grad("Out"))
      .input("StepScopes", ctx.output("StepScopes"))
      .output("X@GRAD", std::move(wanted));
  copy_attrs(ctx, op);
  op.attr("original_output_grad", make_attr(ctx.output_grad("Out")));
  return one_grad_op(std::move(op));
}

// True for integer and bool tensors, such as counters and flags.
bool is_whole_number(const Block& block, llvm::StringRef name) {
  const Var* const var = block.find_var_recursive(name);
  if (var == nullptr || var->kind() != VarKind::kLodTensor || !var->spec().has_tensor())
    return false;
  switch (var->dtype()) {
    case DType::kBool:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint8:
      return true;
    default:
      return false;
  }
}

StatusOr<std::vector<GradOp>> grad_conditional(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("Input", /*keep_places=*/true);
  const auto inputs = ctx.forward().input("Input");
  for (size_t i = 0; i < wanted.size() && i < inputs.size(); ++i) {
    if (is_whole_number(ctx.forward().block(), inputs[i])) wanted[i] = names::kEmpty;
  }
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op("conditional_block_grad");
  op.input("Cond", ctx.input("Cond"))
      .input("Input", ctx.input("Input"))
      .input("Out", ctx.output("Out"))
      .input("Out@GRAD", ctx.output_grad("Out"))
      .input("Scope", ctx.output("Scope"))
      .output("Input@GRAD", std::move(wanted));
  // no other attribute is copied
  if (const AttrValue* const scalar = ctx.forward().find_attr("is_scalar_condition"))
    op.attr("is_scalar_condition", *scalar);
  return one_grad_op(std::move(op));
}

StatusOr<std::vector<GradOp>> grad_recurrent(const GradContext& ctx) {
  GradOp op("recurrent_grad");
  bool any = false;
  for (const char* const slot : {"inputs", "initial_states", "parameters"}) {
    std::vector<std::string> wanted = ctx.input_grad(slot, /*keep_places=*/true);
    any = any || !wanted.empty();
    op.input(slot, ctx.input(slot));
    op.output(std::string(slot) + "@GRAD", std::move(wanted));
  }
  if (!any) return std::vector<GradOp>{};
  op.input("outputs", ctx.output("outputs"))
      .input("outputs@GRAD", ctx.output_grad("outputs"))
      .input("step_scopes", ctx.output("step_scopes"))
      // the gradient uses the forward scopes; there is no separate var for them
      .input("step_scopes@GRAD", ctx.output("step_scopes"));
  copy_attrs(ctx, op);
  return one_grad_op(std::move(op));
}

void add_while(OpRegistry& registry) {
  registry.add(
      OpDef("while")
          .doc("runs the sub-block as long as Condition holds")
          .input("X", "outer vars read inside", Arity::kAny, kAnyKind)
          .input("Condition", "one bool; the sub-block recomputes it")
          .output("Out", "outer vars written inside", Arity::kAny, kAnyKind)
          .output("StepScopes", "scope of every iteration, for the gradient", Arity::kOne, kAnyKind)
          .block_attr("sub_block", "body of the loop")
          .attr("is_test", false, "do not keep scopes for a gradient")
          .attr("skip_eager_deletion_vars", Strings{}, "vars to keep after an iteration")
          .infer(infer_while)
          .grad(grad_while)
          .shares_block());
  registry.add(
      OpDef("while_grad")
          .doc("gradient of while: runs the iterations from last to first")
          .input("X", "outer vars read inside", Arity::kAny, kAnyKind)
          .input("Out", "outer vars written inside", Arity::kAny, kAnyKind)
          .input("Out@GRAD", "gradients of these", Arity::kAny, kAnyKind)
          .input("StepScopes", "scopes of the forward op", Arity::kOptional, kAnyKind)
          .output("X@GRAD", "gradients of X; @EMPTY@ where none is needed", Arity::kAny, kAnyKind)
          .block_attr("sub_block", "gradient ops of the body")
          .attr("is_test", false, "no effect")
          .attr("original_output_grad", Strings{}, "names of Out@GRAD inside")
          .attr("skip_eager_deletion_vars", Strings{}, "vars to keep after an iteration")
          .infer(infer_while_grad)
          .shares_block());
}

void add_conditional(OpRegistry& registry) {
  registry.add(
      OpDef("conditional_block")
          .doc("runs the sub-block once if the condition holds")
          .input("Cond", "a bool, or vars that must not be empty", Arity::kAny, kAnyKind)
          .input("Input", "outer vars read inside", Arity::kAny, kAnyKind)
          .output("Out", "outer vars written inside", Arity::kAny, kAnyKind)
          .output("Scope", "scope of the run, for the gradient", Arity::kOptional, kAnyKind)
          .block_attr("sub_block", "what is run")
          .attr("is_scalar_condition", false,
                "true: Cond is one bool; false: all of Cond are not empty")
          .attr("skip_eager_deletion_vars", Strings{}, "vars to keep after the run")
          .infer(infer_conditional)
          .grad(grad_conditional)
          .shares_block());
  registry.add(OpDef("conditional_block_grad")
                   .doc("gradient of conditional_block; zeros if it did not run")
                   .input("Cond", "as in the forward op", Arity::kAny, kAnyKind)
                   .input("Input", "outer vars read inside", Arity::kAny, kAnyKind)
                   .input("Out", "outer vars written inside", Arity::kAny, kAnyKind)
                   .input("Out@GRAD", "gradients of these", Arity::kAny, kAnyKind)
                   .input("Scope", "scope of the forward op", Arity::kOptional, kAnyKind)
                   .output("Input@GRAD", "gradients of Input", Arity::kAny, kAnyKind)
                   .block_attr("sub_block", "gradient ops of the block")
                   .attr("is_scalar_condition", false, "as in the forward op")
                   .attr("skip_eager_deletion_vars", Strings{}, "vars to keep after the run")
                   .infer(infer_conditional_grad)
                   .shares_block());
}

OpDef& recurrent_attrs(OpDef& def) {
  return def.attr("has_states", false, "states are passed between time steps")
      .attr("ex_states", Strings{}, "names in the sub-block of the states before a time step")
      .attr("states", Strings{}, "names in the sub-block of the states after a time step")
      .attr("reverse", false, "last time step first")
      .attr("is_train", true, "keep the scopes for a gradient")
      .attr("skip_eager_deletion_vars", Strings{}, "vars to keep after an iteration");
}

void add_recurrent(OpRegistry& registry) {
  OpDef forward("recurrent");
  forward.doc("runs the sub-block once for each time step of the inputs")
      .input("inputs", "sequences, time first; the sub-block sees one time step of each",
             Arity::kAny)
      .input("initial_states", "states before the first time step", Arity::kAny)
      .input("parameters", "outer vars read inside", Arity::kAny, kAnyKind)
      .output("outputs", "results of the time steps, stacked on dim 0", Arity::kAny)
      .output("step_scopes", "scope of every iteration, for the gradient", Arity::kOptional,
              kAnyKind)
      .block_attr("sub_block", "one time step")
      .infer(infer_recurrent)
      .grad(grad_recurrent);
  registry.add(recurrent_attrs(forward));
  OpDef backward("recurrent_grad");
  backward.doc("gradient of recurrent: runs the time steps from last to first")
      .input("inputs", "sequences of the forward op", Arity::kAny)
      .input("initial_states", "states before the first time step", Arity::kAny)
      .input("parameters", "outer vars read inside", Arity::kAny, kAnyKind)
      .input("outputs", "results of the forward op", Arity::kAny)
      .input("outputs@GRAD", "gradients of these", Arity::kAny)
      .input("step_scopes", "scopes of the forward op", Arity::kOptional, kAnyKind)
      .input("step_scopes@GRAD", "the same scopes", Arity::kOptional, kAnyKind)
      .output("inputs@GRAD", "gradients of the sequences", Arity::kAny)
      .output("initial_states@GRAD", "gradients of the first states", Arity::kAny)
      .output("parameters@GRAD", "gradients, summed over the time steps", Arity::kAny)
      .block_attr("sub_block", "gradient ops of one time step")
      .infer(infer_recurrent_grad);
  registry.add(recurrent_attrs(backward).shares_block());
}

}  // namespace

void add_control_flow_blocks(OpRegistry& registry) {
  add_while(registry);
  add_conditional(registry);
  add_recurrent(registry);
}

}  // namespace millrace::ops
