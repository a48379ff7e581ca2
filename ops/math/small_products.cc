#include "ops/lod_offsets.h"
#include "ops/math/matrix_dims.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace small_products {
namespace {

bool both_known(const InferContext& ctx, llvm::StringRef a, llvm::StringRef b) {
  return dims_known(ctx.input(a)) && dims_known(ctx.input(b));
}

Status infer_bmm(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 3, 3));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Y", 3, 3));
  const VarMeta& x = ctx.input("X");
  if (!both_known(ctx, "X", "Y")) {
    ctx.set_output("Out", x.dtype, {-1, -1, -1});
    return Ok();
  }
  const MatrixDims a = left_matrix(x.dims, /*transpose=*/false);
  const MatrixDims b = right_matrix(ctx.input("Y").dims, /*transpose=*/false);
  MILLRACE_RETURN_IF_ERROR(check_inner(ctx, a, b));
  MILLRACE_ASSIGN_OR_RETURN(const Dims batch, product_batch(ctx, a, b));
  ctx.set_output("Out", tensor_with_lod_of(x, x.dtype, {batch[0], a.rows, b.cols}));
  return Ok();
}

Status infer_mv(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Vec", 1, 1));
  const VarMeta& x = ctx.input("X");
  const VarMeta& vec = ctx.input("Vec");
  if (both_known(ctx, "X", "Vec") && !dims_agree(x.dims[1], vec.dims[0])) {
    return ctx.error("X {} has {} columns, but Vec has {} elements", dims_text(x.dims), x.dims[1],
                     vec.dims[0]);
  }
  ctx.set_output("Out", with_offsets_of(tensor_meta(x.dtype, {dims_known(x) ? x.dims[0] : -1}), x));
  return Ok();
}

Status infer_dot(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 1, 2));
  MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "X", "Y"));
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) {
    ctx.set_output("Out", shapeless_meta(x.dtype));
    return Ok();
  }
  ctx.set_output("Out", x.dtype, llvm::ArrayRef<int64_t>(x.dims).drop_back());
  return Ok();
}

Status infer_addmm(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Y", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Input", 1, 2));
  const VarMeta& x = ctx.input("X");
  if (!both_known(ctx, "X", "Y")) {
    ctx.set_output("Out", x.dtype, {-1, -1});
    return Ok();
  }
  const MatrixDims a = left_matrix(x.dims, /*transpose=*/false);
  const MatrixDims b = right_matrix(ctx.input("Y").dims, /*transpose=*/false);
  MILLRACE_RETURN_IF_ERROR(check_inner(ctx, a, b));
  ctx.set_output("Out",
                 with_offsets_of(tensor_meta(x.dtype, {a.rows, b.cols}), ctx.input("Input")));
  return Ok();
}

double flops(const InferContext& ctx) {
  if (!both_known(ctx, "X", "Y")) return 1;
  return product_flops(ctx, left_matrix(ctx.input("X").dims, /*transpose=*/false),
                       right_matrix(ctx.input("Y").dims, /*transpose=*/false));
}

double flops_mv(const InferContext& ctx) {
  return 2 * element_count(ctx.input("X"));
}

}  // namespace
}  // namespace small_products

/// addmm, bmm, dot, mv: products of matrices and vectors of fixed rank.
void add_math_small_products(OpRegistry& registry) {
  using namespace small_products;
  registry.add(OpDef("bmm")
                   .doc("product of two batches of matrices")
                   .input("X", "[batch, m, k]")
                   .input("Y", "[batch, k, n]")
                   .output("Out", "[batch, m, n]")
                   .infer(infer_bmm)
                   .grad({.type = "bmm_grad",
                          .inputs = {"Out@GRAD", "X", "Y"},
                          .outputs = {"X@GRAD", "Y@GRAD"},
                          .infer = infer_grad_without_offsets})
                   .flops(flops));
  registry.add(OpDef("mv")
                   .doc("product of a matrix and a vector")
                   .input("X", "[m, n]")
                   .input("Vec", "[n]")
                   .output("Out", "[m]")
                   .infer(infer_mv)
                   .grad({.type = "mv_grad",
                          .inputs = {"Out@GRAD", "Vec", "X"},
                          .outputs = {"Vec@GRAD", "X@GRAD"}})
                   .flops(flops_mv));
  registry.add(OpDef("dot")
                   .doc("inner product over the last dim")
                   .input("X", "[n] or [batch, n]")
                   .input("Y", "shape of X")
                   .output("Out", "X without its last dim")
                   .infer(infer_dot)
                   .grad({.type = "dot_grad",
                          .inputs = {"Out@GRAD", "X", "Y"},
                          .outputs = {"X@GRAD", "Y@GRAD"}})
                   .flops(flops_mv));
  registry.add(OpDef("addmm")
                   .doc("Beta * Input + Alpha * X * Y")
                   .input("Input", "[m, n], or broadcast to it")
                   .input("X", "[m, k]")
                   .input("Y", "[k, n]")
                   .output("Out", "[m, n]")
                   .attr("Alpha", 1.0F, "factor of the product")
                   .attr("Beta", 1.0F, "factor of Input")
                   .infer(infer_addmm)
                   .grad({.type = "addmm_grad",
                          .inputs = {"Input", "Out@GRAD", "X", "Y"},
                          .outputs = {"Input@GRAD", "X@GRAD", "Y@GRAD"}})
                   .flops(flops));
}

}  // namespace millrace::ops
