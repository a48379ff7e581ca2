#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

// Ops that split ids by server and merge the responses in the original order; spec/op_gaps.md.
namespace millrace::ops {
namespace {

// Ids [n, 1] are split into vars of [-1, 1]; rows of a gradient keep their width.
Status infer_split_ids(InferContext& ctx) {
  const VarMeta& ids = ctx.input("Ids");
  if (!dims_known(ids)) return Ok();
  for (size_t i = 0; i < ctx.op().output("Out").size(); ++i) {
    VarMeta out = ids;
    out.lod_level = 0;
    out.lod = {};
    if (ids.kind != VarKind::kSelectedRows) out.dims = Dims{-1, 1};
    ctx.set_output("Out", std::move(out), i);
  }
  return Ok();
}

Status infer_merge_ids(InferContext& ctx) {
  if (ctx.input_count("Ids") != ctx.output_count("Out")) {
    return ctx.error("'Out' has {} vars, expected {}, one for each var of 'Ids'",
                     ctx.output_count("Out"), ctx.input_count("Ids"));
  }
  if (ctx.input_count("Rows") != ctx.input_count("X")) {
    return ctx.error("'X' has {} vars, expected {}, one for each var of 'Rows'",
                     ctx.input_count("X"), ctx.input_count("Rows"));
  }
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x) || x.rank() != 2) return Ok();
  for (size_t i = 0; i < ctx.op().output("Out").size(); ++i) {
    const VarMeta& ids = ctx.input("Ids", i);
    const int64_t rows = dims_known(ids) && ids.rank() > 0 ? ids.dims[0] : -1;
    ctx.set_output("Out", tensor_with_lod_of(ids, x.dtype, {rows, x.dims[1]}), i);
  }
  return Ok();
}

}  // namespace

void add_distributed_ids(OpRegistry& registry) {
  registry.add(OpDef("split_ids")
                   .doc("distinct ids in ascending order, or rows in their order; output i gets "
                        "the ids with id mod n = i")
                   .input("Ids", "ids, or a gradient whose rows are ids", Arity::kMany)
                   .output("Out", "ids or rows for each server", Arity::kMany)
                   .infer(infer_split_ids));
  registry.add(OpDef("merge_ids")
                   .doc("output i has the row of each id of Ids[i], in order, repeats included")
                   .input("Ids", "ids as they were before splitting", Arity::kMany)
                   .input("Rows", "ids requested from each server", Arity::kMany)
                   .input("X", "rows received from each server", Arity::kMany)
                   .output("Out", "rows for each var of Ids", Arity::kMany)
                   .infer(infer_merge_ids));
}

}  // namespace millrace::ops
