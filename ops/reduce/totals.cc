#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace totals {
namespace {

Status infer_scalar(InferContext& ctx) {
  ctx.set_output("Out", ctx.input("X").dtype, {});
  return Ok();
}
Status infer_one(InferContext& ctx) {
  ctx.set_output("Out", ctx.input("X").dtype, {1});
  return Ok();
}
Status infer_flag(InferContext& ctx) {
  ctx.set_output("Out", DType::kBool, {1});
  return Ok();
}

OpDef total(llvm::StringRef type, llvm::StringRef doc, llvm::StringRef out_doc, InferFn infer) {
  OpDef def(type);
  def.doc(doc).input("X", "any shape").output("Out", out_doc).infer(infer).flops(elementwise_flops);
  return def;
}

GradSpec from_x(llvm::StringRef type) {
  return {type, {"Out@GRAD", "X"}, {"X@GRAD"}, {}};
}

}  // namespace
}  // namespace totals

/// mean, l1_norm, squared_l2_norm, and the checks of fluid 1.x with one bool as result.
void add_reduce_totals(OpRegistry& registry) {
  using namespace totals;
  registry.add(total("mean", "mean of all elements", "rank 0; fluid 1.x declares [1]", infer_scalar)
                   .grad(from_x("mean_grad")));
  registry.add(total("l1_norm", "sum of the absolute values", "rank 0", infer_scalar)
                   .grad(without_offsets(from_x("l1_norm_grad"))));
  registry.add(total("squared_l2_norm", "sum of the squares", "shape [1]", infer_one)
                   .grad(from_x("squared_l2_norm_grad")));
  registry.add(total("isfinite", "whether every element is finite", "bool [1]", infer_flag));
  registry.add(total("isinf", "whether any element is infinite", "bool [1]", infer_flag));
  registry.add(total("isnan", "whether any element is NaN", "bool [1]", infer_flag));
}

}  // namespace millrace::ops
