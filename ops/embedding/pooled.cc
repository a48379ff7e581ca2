#include <algorithm>

#include "ops/infer_helpers.h"
#include "ops/registry.h"
#include "ops/sequence/lods.h"

// Rows of tables by id, combined per sequence.
namespace millrace::ops {
namespace pooled_ops {
namespace {

// Meta of the pooled rows of W[k]; a meta without shape if the shape is unknown.
StatusOr<VarMeta> pooled_meta(const InferContext& ctx, size_t k) {
  const VarMeta& table = ctx.input("W", k);
  const VarMeta& ids = ctx.input("Ids", k);
  if (!dims_known(table) || !dims_known(ids)) return shapeless_meta(table.dtype);
  if (table.rank() != 2)
    return ctx.error("'W' has shape {}, expected rank 2", dims_text(table.dims));
  if (ids.dims.empty()) return ctx.error("'Ids' has no dims, expected at least one");
  const int64_t each = dims_product(llvm::ArrayRef<int64_t>(ids.dims).drop_front());
  const int64_t rows = ids.lod.empty() ? -1 : ids.lod.sequences(ids.lod.size() - 1);
  VarMeta out =
      tensor_meta(table.dtype, {rows, each < 0 ? -1 : dims_product({each, table.dims[1]})},
                  std::max(ids.lod_level - 1, 0));
  out.lod = without_last(ids.lod);
  return out;
}

Status infer(InferContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(VarMeta out, pooled_meta(ctx, 0));
  ctx.set_output("Out", std::move(out));
  return Ok();
}

// The parts, concatenated by columns. The LoD is that of the first one, as for concat.
Status infer_concat(InferContext& ctx) {
  size_t tables = 0;
  size_t matrices = 0;
  std::optional<VarMeta> out;
  for (const int32_t pooled : ctx.attr<std::vector<int32_t>>("parts")) {
    VarMeta part;
    if (pooled != 0) {
      MILLRACE_ASSIGN_OR_RETURN(part, pooled_meta(ctx, tables++));
    } else {
      part = ctx.input("X", matrices++);
    }
    if (!dims_known(part)) {
      ctx.set_output("Out", shapeless_meta(part.dtype));
      return Ok();
    }
    if (part.rank() != 2)
      return ctx.error("a part has shape {}, expected rank 2", dims_text(part.dims));
    if (!out) {
      out = part;
      continue;
    }
    if (!dims_agree(out->dims[0], part.dims[0]))
      return ctx.error("a part has shape {}, expected {} rows", dims_text(part.dims), out->dims[0]);
    if (out->dims[0] < 0) out->dims[0] = part.dims[0];
    const bool known = out->dims[1] >= 0 && part.dims[1] >= 0;
    out->dims[1] = known ? out->dims[1] + part.dims[1] : -1;
  }
  if (!out || tables != ctx.input_count("W") || tables != ctx.input_count("Ids") ||
      matrices != ctx.input_count("X")) {
    return ctx.error(
        "attribute 'parts' names {} tables and {} matrices, expected the number of vars of 'W', "
        "{} (with {} of 'Ids'), and of 'X', {}",
        tables, matrices, ctx.input_count("W"), ctx.input_count("Ids"), ctx.input_count("X"));
  }
  ctx.set_output("Out", std::move(*out));
  return Ok();
}

Status infer_grad(InferContext& ctx) {
  const bool sparse = ctx.attr<bool>("is_sparse");
  const Slot* const tables = ctx.op().find_input("W");
  for (size_t i = 0; tables != nullptr && i < tables->args.size(); ++i) {
    VarMeta meta = ctx.input("W", i);
    meta.kind = sparse ? VarKind::kSelectedRows : VarKind::kLodTensor;
    meta.lod_level = 0;
    ctx.set_output("W@GRAD", std::move(meta), i);
  }
  copy_each(ctx, "X", "X@GRAD");
  return Ok();
}

OpDef& with_attrs(OpDef& def) {
  return def.attr("combiner", "sum", "how the rows of a sequence are combined")
      .one_of({"sum", "average", "sqrt"})
      .attr("padding_idx", int64_t{-1}, "id whose row counts as zero; -1: none")
      .attr("pad_value", 0.0F, "result of an empty sequence")
      .attr("is_sparse", false, "the gradient is SELECTED_ROWS")
      .attr("grad_inplace", false, "no effect on results");
}

}  // namespace
}  // namespace pooled_ops

void add_embedding_pooled(OpRegistry& registry) {
  using namespace pooled_ops;
  OpDef one("fused_embedding_seq_pool");
  one.doc("rows of a table by id, combined per sequence; the original has the sum only")
      .input("W", "the table [rows, width]")
      .input("Ids", "sequences of ids, int32 or int64")
      .output("Out", "[sequences, ids of a row * width], one LoD level less")
      .infer(infer)
      .grad({.type = "fused_embedding_seq_pool_grad",
             .inputs = {"Ids", "Out@GRAD", "W"},
             .outputs = {"W@GRAD"},
             .infer = infer_grad})
      .flops(elementwise_flops);
  registry.add(with_attrs(one));

  OpDef many("fused_embedding_seq_pool_concat");
  many.doc(
          "fused_embedding_seq_pool of several tables, concatenated with other matrices; made by "
          "the rewrite join-embeddings")
      .input("W", "the tables [rows, width]", Arity::kMany)
      .input("Ids", "sequences of ids, one for each of W", Arity::kMany)
      .input("X", "matrices", Arity::kAny)
      .output("Out", "[sequences, sum of the widths]")
      .required_attr<std::vector<int32_t>>("parts", "in order: 1 the next table, 0 the next of X")
      .range(0, 1)
      .infer(infer_concat)
      .grad({.type = "fused_embedding_seq_pool_concat_grad",
             .inputs = {"Ids", "Out@GRAD", "W", "X"},
             .outputs = {"W@GRAD", "X@GRAD"},
             .infer = infer_grad})
      .flops(elementwise_flops);
  registry.add(with_attrs(many));
}

}  // namespace millrace::ops
