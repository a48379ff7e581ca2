#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace row_losses {
namespace {

int64_t rows_of(const VarMeta& meta) {
  return dims_known(meta) && !meta.dims.empty() ? meta.dims[0] : -1;
}

Status infer_smooth_l1(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 64));
  for (const char* const slot : {"Y", "InsideWeight", "OutsideWeight"})
    MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "X", slot));
  if (ctx.has_input("InsideWeight") != ctx.has_input("OutsideWeight"))
    return ctx.error("InsideWeight and OutsideWeight must be given together, found one of them");
  const VarMeta x = ctx.input("X");
  ctx.copy("X", "Diff");
  ctx.set_output("Out", tensor_with_lod_of(x, x.dtype, {rows_of(x), 1}));
  return Ok();
}

Status infer_distance(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 64));
  const VarMeta x = ctx.input("X");
  const VarMeta y = ctx.input("Y");
  if (dims_known(x) && dims_known(y)) {
    const llvm::ArrayRef<int64_t> row_x = llvm::ArrayRef<int64_t>(x.dims).drop_front();
    const bool one_row = !y.dims.empty() && y.dims[0] == 1;
    const bool rows = x.rank() == y.rank() && (one_row || dims_agree(x.dims[0], y.dims[0]));
    const int64_t width_y = rows ? dims_product(llvm::ArrayRef<int64_t>(y.dims).drop_front()) : -1;
    if (!rows || !dims_agree(dims_product(row_x), width_y)) {
      return ctx.error("Y must have the rows of X or one, and as many columns, found {} and {}",
                       dims_text(x.dims), dims_text(y.dims));
    }
  }
  int64_t width = -1;
  if (dims_known(x)) width = dims_product(llvm::ArrayRef<int64_t>(x.dims).drop_front());
  ctx.set_output("sub_result", x.dtype, {rows_of(x), width});
  ctx.set_output("Out", tensor_with_lod_of(x, x.dtype, {rows_of(x), 1}));
  return Ok();
}

double flops(const InferContext& ctx) {
  return 4 * element_count(ctx.input("X"));
}

}  // namespace
}  // namespace row_losses

/// Losses of fluid 1.x with one value per row.
void add_loss_row_losses(OpRegistry& registry) {
  using namespace row_losses;
  registry.add(OpDef("smooth_l1_loss")
                   .doc("squared error near 0, absolute error beyond 1 / sigma^2, summed by row")
                   .input("X", "[n, ...]")
                   .input("Y", "shape of X")
                   .input("InsideWeight", "factor of X - Y", Arity::kOptional)
                   .input("OutsideWeight", "factor of the error", Arity::kOptional)
                   .intermediate("Diff", "(X - Y) * InsideWeight")
                   .output("Out", "[n, 1]")
                   .attr("sigma", 1.0F, "sharpness; the quadratic part ends at 1 / sigma^2")
                   .infer(infer_smooth_l1)
                   .grad({.type = "smooth_l1_loss_grad",
                          .inputs = {"Diff", "InsideWeight", "Out@GRAD", "OutsideWeight"},
                          .outputs = {"X@GRAD", "Y@GRAD"},
                          .shape_like = {{"X@GRAD", "Diff"}, {"Y@GRAD", "Diff"}}})
                   .flops(flops));
  registry.add(OpDef("squared_l2_distance")
                   .doc("sum of squared differences by row")
                   .input("X", "[n, ...]")
                   .input("Y", "shape of X, or one row for all")
                   .intermediate("sub_result", "X - Y as a matrix")
                   .output("Out", "[n, 1]")
                   .infer(infer_distance)
                   .grad({.type = "squared_l2_distance_grad",
                          .inputs = {"Out@GRAD", "X", "Y", "sub_result"},
                          .outputs = {"X@GRAD", "Y@GRAD"}})
                   .flops(flops));
}

}  // namespace millrace::ops
