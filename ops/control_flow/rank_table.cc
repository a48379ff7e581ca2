#include <algorithm>

#include "ops/grad_rules.h"
#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Dynamic RNNs of fluid: sequences ordered by length (rank table), split into one tensor per time
// step.
namespace millrace::ops {
namespace rank_table {
namespace {

VarMeta rows_unknown(const VarMeta& meta) {
  VarMeta out = meta;
  if (!out.dims.empty()) out.dims[0] = -1;
  return out;
}

Status infer_to_array(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return Ok();
  VarMeta out = rows_unknown(x);
  out.kind = VarKind::kLodTensorArray;
  out.lod_level = std::max(x.lod_level - 1, 0);
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_from_array(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return Ok();
  VarMeta out = rows_unknown(x);
  out.kind = VarKind::kLodTensor;
  out.lod_level = x.lod_level + 1;
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_max_len(InferContext& ctx) {
  ctx.set_output("Out", DType::kInt64, {1});
  return Ok();
}

// Later time steps have fewer sequences.
Status infer_shrink(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_elements(ctx, "I", 1));
  const VarMeta& x = ctx.input("X");
  if (dims_known(x)) ctx.set_output("Out", rows_unknown(x));
  return Ok();
}

StatusOr<std::vector<GradOp>> swap_grad(const GradContext& ctx, llvm::StringRef type) {
  std::vector<std::string> wanted = ctx.input_grad("X");
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op(type);
  op.input("X", ctx.output_grad("Out"))
      .input("RankTable", ctx.input("RankTable"))
      .output("Out", std::move(wanted));
  copy_attrs(ctx, op);
  return one_grad_op(std::move(op));
}

StatusOr<std::vector<GradOp>> grad_to_array(const GradContext& ctx) {
  return swap_grad(ctx, "array_to_lod_tensor");
}
StatusOr<std::vector<GradOp>> grad_from_array(const GradContext& ctx) {
  return swap_grad(ctx, "lod_tensor_to_array");
}
StatusOr<std::vector<GradOp>> grad_reorder(const GradContext& ctx) {
  return swap_grad(ctx, "reorder_lod_tensor_by_rank_grad");
}

OpDef reorder(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "sequences, or one row per sequence")
      .input("RankTable", "the order", Arity::kOne, kRankTable)
      .output("Out", "shape of X")
      .infer(infer_unary);
  return def;
}

}  // namespace
}  // namespace rank_table

void add_control_flow_rank_table(OpRegistry& registry) {
  using namespace rank_table;
  registry.add(OpDef("lod_rank_table")
                   .doc("sequences of a LoD level, longest first")
                   .input("X", "tensor with LoD")
                   .output("Out", "the table", Arity::kOne, kRankTable)
                   .attr("level", 0, "LoD level")
                   .range(0));
  registry.add(OpDef("max_sequence_len")
                   .doc("length of the longest sequence")
                   .input("RankTable", "the table", Arity::kOne, kRankTable)
                   .output("Out", "one int64")
                   .infer(infer_max_len));
  registry.add(OpDef("lod_tensor_to_array")
                   .doc("element t holds time step t of every sequence that is long enough")
                   .input("X", "sequences")
                   .input("RankTable", "order of the sequences", Arity::kOne, kRankTable)
                   .output("Out", "one element per time step", Arity::kOne, kTensorArray)
                   .infer(infer_to_array)
                   .grad(grad_to_array));
  registry.add(OpDef("array_to_lod_tensor")
                   .doc("inverse of lod_tensor_to_array")
                   .input("X", "one element per time step", Arity::kOne, kTensorArray)
                   .input("RankTable", "order of the sequences", Arity::kOne, kRankTable)
                   .output("Out", "sequences")
                   .infer(infer_from_array)
                   .grad(grad_from_array));
  registry.add(OpDef("shrink_rnn_memory")
                   .doc("rows of X whose sequences are longer than time step I")
                   .input("X", "state, one row per sequence in the order of the table")
                   .input("RankTable", "order of the sequences", Arity::kOne, kRankTable)
                   .input("I", "time step, one element")
                   .output("Out", "leading rows of X")
                   .infer(infer_shrink)
                   .grad({"shrink_rnn_memory_grad", {"Out@GRAD", "X"}, {"X@GRAD"}, {}}));
  registry.add(reorder("reorder_lod_tensor_by_rank", "sequences in the order of the table")
                   .grad(grad_reorder));
  registry.add(
      reorder("reorder_lod_tensor_by_rank_grad", "sequences back in their original order"));
}

}  // namespace millrace::ops
