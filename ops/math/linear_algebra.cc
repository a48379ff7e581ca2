#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

// Ops on square matrices, which the last two dims hold.
namespace millrace::ops {
namespace {

Status infer_square(InferContext& ctx, llvm::StringRef in, llvm::StringRef out) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, in, 2, 64));
  const VarMeta& x = ctx.input(in);
  if (dims_known(x) && !dims_agree(x.dims[x.rank() - 2], x.dims.back())) {
    return ctx.error("'{}' must hold square matrices, found {}",
                     std::string_view(in.data(), in.size()), dims_text(x.dims));
  }
  ctx.set_output(out, without_offsets(x));
  return Ok();
}

Status infer_inverse(InferContext& ctx) {
  return infer_square(ctx, "Input", "Output");
}
Status infer_cholesky(InferContext& ctx) {
  return infer_square(ctx, "X", "Out");
}

double flops_square(const VarMeta& x, double share) {
  const double size = x.rank() < 2 ? 1 : static_cast<double>(std::max<int64_t>(x.dims.back(), 1));
  return share * element_count(x) * size;
}
double flops_inverse(const InferContext& ctx) {
  return flops_square(ctx.input("Input"), 2);
}
double flops_cholesky(const InferContext& ctx) {
  return flops_square(ctx.input("X"), 1.0 / 3);
}

}  // namespace

/// inverse, cholesky
void add_math_linear_algebra(OpRegistry& registry) {
  registry.add(OpDef("inverse")
                   .doc("the inverse of each matrix")
                   .input("Input", "square matrices in the last two dims")
                   .output("Output", "shape of Input")
                   .infer(infer_inverse)
                   .grad({.type = "inverse_grad",
                          .inputs = {"Output", "Output@GRAD"},
                          .outputs = {"Input@GRAD"},
                          .shape_like = {{"Input@GRAD", "Output"}}})
                   .flops(flops_inverse));
  registry.add(OpDef("cholesky")
                   .doc("triangular factor of each symmetric, positive definite matrix")
                   .input("X", "square matrices in the last two dims; one triangle is read")
                   .output("Out", "shape of X; 0 in the other triangle")
                   .attr("upper", false, "the factor is upper triangular, X = Out^T Out")
                   .infer(infer_cholesky)
                   .grad({.type = "cholesky_grad",
                          .inputs = {"Out", "Out@GRAD"},
                          .outputs = {"X@GRAD"},
                          .shape_like = {{"X@GRAD", "Out"}}})
                   .flops(flops_cholesky));
}

}  // namespace millrace::ops
