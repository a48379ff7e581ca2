#include "ops/grad_rules.h"
#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Choosing between vars, and splitting rows by a mask.
namespace millrace::ops {
namespace branches {
namespace {

constexpr uint32_t kBranchesData = kTensorLike | kTensorArray;

// The branches may differ in dims; a dim of the result is known if it is the same in all of them.
Status infer_select_input(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_elements(ctx, "Mask", 1));
  if (!ctx.has_input("X") || !ctx.input("X").has_shape) return Ok();
  VarMeta out = ctx.input("X");
  for (size_t i = 1; i < ctx.input_count("X"); ++i) {
    const VarMeta& other = ctx.input("X", i);
    if (!other.has_shape || other.rank() != out.rank()) return Ok();
    for (size_t d = 0; d < out.rank(); ++d) {
      if (other.dims[d] != out.dims[d]) out.dims[d] = -1;
    }
  }
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_select_output(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_elements(ctx, "Mask", 1));
  if (!ctx.input("X").has_shape) return Ok();
  for (size_t i = 0; i < ctx.op().output("Out").size(); ++i)
    ctx.set_output("Out", ctx.input("X"), i);
  return Ok();
}

StatusOr<std::vector<GradOp>> select_grad(const GradContext& ctx, llvm::StringRef type) {
  std::vector<std::string> wanted = ctx.input_grad("X", /*keep_places=*/true);
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op(type);
  op.input("X", ctx.output_grad("Out"))
      .input("Mask", ctx.input("Mask"))
      .output("Out", std::move(wanted));
  copy_attrs(ctx, op);
  return one_grad_op(std::move(op));
}
StatusOr<std::vector<GradOp>> grad_select_input(const GradContext& ctx) {
  return select_grad(ctx, "select_output");
}
StatusOr<std::vector<GradOp>> grad_select_output(const GradContext& ctx) {
  return select_grad(ctx, "select_input");
}

Status infer_split(InferContext& ctx) {
  VarMeta out = ctx.input("X");
  if (!dims_known(out) || out.dims.empty()) return Ok();
  out.dims[0] = -1;
  ctx.set_output("OutTrue", out);
  ctx.set_output("OutFalse", std::move(out));
  return Ok();
}

Status infer_merge(InferContext& ctx) {
  VarMeta out = ctx.input("InTrue");
  if (!dims_known(out) || out.dims.empty()) return Ok();
  out.dims[0] = -1;
  ctx.set_output("Out", std::move(out));
  return Ok();
}

StatusOr<std::vector<GradOp>> grad_split_lod_tensor(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("X");
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op("merge_lod_tensor");
  op.input("X", ctx.input("X"))
      .input("Mask", ctx.input("Mask"))
      .input("InTrue", ctx.output_grad("OutTrue"))
      .input("InFalse", ctx.output_grad("OutFalse"))
      .output("Out", std::move(wanted));
  copy_attrs(ctx, op);
  return one_grad_op(std::move(op));
}

StatusOr<std::vector<GradOp>> grad_merge(const GradContext& ctx) {
  std::vector<std::string> if_true = ctx.input_grad("InTrue");
  std::vector<std::string> if_false = ctx.input_grad("InFalse");
  if (if_true.empty() && if_false.empty()) return std::vector<GradOp>{};
  GradOp op("split_lod_tensor");
  op.input("X", ctx.output_grad("Out"))
      .input("Mask", ctx.input("Mask"))
      .output("OutTrue", std::move(if_true))
      .output("OutFalse", std::move(if_false));
  copy_attrs(ctx, op);
  return one_grad_op(std::move(op));
}

OpDef merge(llvm::StringRef type) {
  OpDef def(type);
  def.doc("inverse of split_lod_tensor")
      .input("X", "tensor that was split; determines LoD and order")
      .input("Mask", "one bool per sequence")
      .input("InTrue", "sequences whose mask is true")
      .input("InFalse", "sequences whose mask is false")
      .output("Out", "all sequences in the order of X")
      .attr("level", 0, "LoD level")
      .range(0)
      .infer(infer_merge);
  return def;
}

}  // namespace
}  // namespace branches

void add_control_flow_branches(OpRegistry& registry) {
  using namespace branches;
  registry.add(OpDef("select_input")
                   .doc("Out = X[Mask]")
                   .input("X", "one var per branch", Arity::kMany, kBranchesData)
                   .input("Mask", "one int32")
                   .output("Out", "the chosen var", Arity::kOne, kBranchesData)
                   .infer(infer_select_input)
                   .grad(grad_select_input));
  registry.add(OpDef("select_output")
                   .doc("Out[Mask] = X")
                   .input("X", "any shape", Arity::kOne, kBranchesData)
                   .input("Mask", "one int32")
                   // Gradients that are not wanted are @EMPTY@.
                   .output("Out", "one var per branch", Arity::kAny, kBranchesData)
                   .infer(infer_select_output)
                   .grad(grad_select_output));
  registry.add(OpDef("split_lod_tensor")
                   .doc("splits sequences by a mask")
                   .input("X", "sequences")
                   .input("Mask", "one bool per sequence")
                   .output("OutTrue", "sequences whose mask is true", Arity::kOptional)
                   .output("OutFalse", "sequences whose mask is false", Arity::kOptional)
                   .attr("level", 0, "LoD level")
                   .range(0)
                   .infer(infer_split)
                   .grad(grad_split_lod_tensor));
  registry.add(merge("merge_lod_tensor").grad(grad_merge));
  registry.add(merge("merge_lod_tensor_infer"));
}

}  // namespace millrace::ops
