#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace accuracy_ops {
namespace {

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "Out", "Indices"));
  const VarMeta& indices = ctx.input("Indices");
  const VarMeta& label = ctx.input("Label");
  if (dims_known(indices) && dims_known(label) && !indices.dims.empty() && !label.dims.empty() &&
      !dims_agree(indices.dims[0], label.dims[0])) {
    return ctx.error("Indices and Label must have the same number of rows, found {} and {}",
                     dims_text(indices.dims), dims_text(label.dims));
  }
  ctx.set_output("Accuracy", with_offsets_of(tensor_meta(DType::kFloat32, {}), ctx.input("Out")));
  ctx.set_output("Correct", DType::kInt32, {});
  ctx.set_output("Total", DType::kInt32, {});
  return Ok();
}

}  // namespace
}  // namespace accuracy_ops

void add_metric_accuracy(OpRegistry& registry) {
  registry.add(OpDef("accuracy")
                   .doc("share of rows whose label is among the predicted classes")
                   .input("Out", "scores of the best k classes [n, k]")
                   .input("Indices", "the best k classes [n, k]")
                   .input("Label", "the correct classes [n, 1]")
                   .output("Accuracy", "rank 0; fluid 1.x declares [1]")
                   .output("Correct", "number of hits")
                   .output("Total", "number of rows")
                   .infer(accuracy_ops::infer)
                   .flops(elementwise_flops));
}

}  // namespace millrace::ops
