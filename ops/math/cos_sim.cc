#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace cos_sim {
namespace {

Status infer(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& y = ctx.input("Y");
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 64));
  if (dims_known(x) && dims_known(y)) {
    const bool same_rank = x.rank() == y.rank();
    const bool rows = same_rank && (dims_agree(x.dims[0], y.dims[0]) || y.dims[0] == 1);
    bool rest = rows;
    for (size_t i = 1; rest && i < x.rank(); ++i) rest = dims_agree(x.dims[i], y.dims[i]);
    if (!rest) {
      return ctx.error("Y must have the rows of X or one, and equal other dims, found {} and {}",
                       dims_text(x.dims), dims_text(y.dims));
    }
  }
  const int64_t rows = dims_known(x) ? x.dims[0] : -1;
  const int64_t y_rows = dims_known(y) && !y.dims.empty() ? y.dims[0] : -1;
  ctx.set_output("Out", tensor_with_lod_of(x, x.dtype, {rows, 1}));
  ctx.set_output("XNorm", x.dtype, {rows, 1});
  ctx.set_output("YNorm", x.dtype, {y_rows, 1});
  return Ok();
}

double flops(const InferContext& ctx) {
  return 6 * element_count(ctx.input("X"));
}

}  // namespace
}  // namespace cos_sim

void add_math_cos_sim(OpRegistry& registry) {
  using namespace cos_sim;
  registry.add(OpDef("cos_sim")
                   .doc("cosine of the angle between rows")
                   .input("X", "[n, ...]")
                   .input("Y", "shape of X, or one row for all")
                   .output("Out", "[n, 1], LoD of X")
                   .intermediate("XNorm", "norms of the rows of X")
                   .intermediate("YNorm", "norms of the rows of Y")
                   .infer(infer)
                   .grad({.type = "cos_sim_grad",
                          .inputs = {"Out", "Out@GRAD", "X", "XNorm", "Y", "YNorm"},
                          .outputs = {"X@GRAD", "Y@GRAD"}})
                   .flops(flops));
}

}  // namespace millrace::ops
