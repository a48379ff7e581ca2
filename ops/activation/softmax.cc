#include "ops/activation/unary_op.h"
#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace softmax_ops {
namespace {

Status infer(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (dims_known(x)) {
    MILLRACE_RETURN_IF_ERROR(
        checked_axis(ctx, "axis", ctx.attr<int32_t>("axis"), x.rank()).status());
  }
  return infer_unary(ctx);
}

// Maximum, difference, exponential, sum and quotient.
double flops(const InferContext& ctx) {
  return 5 * elementwise_flops(ctx);
}

OpDef family(llvm::StringRef type, llvm::StringRef grad_type, llvm::StringRef doc) {
  return unary_op(type, grad_type, GradReads::kOut, doc)
      .attr("axis", -1, "dim along which the exponentials are normalized")
      .infer(infer)
      .flops(flops);
}

OpDef softmax() {
  return family("softmax", "softmax_grad", "exp(x) divided by its sum along axis");
}

OpDef log_softmax() {
  return family("log_softmax", "log_softmax_grad", "logarithm of softmax");
}

}  // namespace
}  // namespace softmax_ops

void add_activation_softmax(OpRegistry& registry) {
  using namespace softmax_ops;
  registry.add(softmax());
  registry.add(log_softmax());
}

}  // namespace millrace::ops
