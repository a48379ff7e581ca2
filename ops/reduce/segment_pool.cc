#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace segment_pool {
namespace {

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 1, 64));
  VarMeta out = without_lod(ctx.input("X"));
  if (!dims_known(out)) return Ok();
  const VarMeta& ids = ctx.input("SegmentIds");
  if (dims_known(ids) && ids.rank() > 0 && !dims_agree(ids.dims[0], out.dims[0])) {
    return ctx.error("SegmentIds must have an id for each row of X {}, found {}",
                     dims_text(out.dims), dims_text(ids.dims));
  }
  out.dims[0] = -1;
  if (ctx.attr<std::string>("pooltype") == "MEAN") ctx.set_output("SummedIds", out.dtype, {-1, 1});
  ctx.set_output("Out", std::move(out));
  return Ok();
}

}  // namespace
}  // namespace segment_pool

void add_reduce_segment_pool(OpRegistry& registry) {
  registry.add(OpDef("segment_pool")
                   .doc("sum, mean, maximum or minimum of the rows with the same id; 0 for an id "
                        "without rows")
                   .input("X", "rows")
                   .input("SegmentIds", "int32 or int64, one per row, non-decreasing")
                   .output("Out", "last id + 1 rows")
                   .intermediate("SummedIds", "rows of each id; for MEAN")
                   .attr("pooltype", "SUM", "how the rows of an id are reduced")
                   .one_of({"SUM", "MEAN", "MAX", "MIN"})
                   .infer(segment_pool::infer)
                   .grad({.type = "segment_pool_grad",
                          .inputs = {"X", "SegmentIds", "Out", "SummedIds", "Out@GRAD"},
                          .outputs = {"X@GRAD"}})
                   .flops(elementwise_flops));
}

}  // namespace millrace::ops
