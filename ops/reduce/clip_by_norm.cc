#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace clip_by_norm {
namespace {

double flops(const InferContext& ctx) {
  return 3 * elementwise_flops(ctx);
}

}  // namespace
}  // namespace clip_by_norm

void add_reduce_clip_by_norm(OpRegistry& registry) {
  registry.add(OpDef("clip_by_norm")
                   .doc("X scaled down so that its 2-norm is at most max_norm")
                   .input("X", "dense or sparse rows, any shape")
                   .output("Out", "shape, dtype and kind of X")
                   .required_attr<float>("max_norm", "largest norm of the result, > 0")
                   .range(0)
                   .infer(infer_unary)
                   .flops(clip_by_norm::flops)
                   .inplace("X", "Out"));
}

}  // namespace millrace::ops
