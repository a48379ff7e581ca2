#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace shape {
namespace {

Status infer(InferContext& ctx) {
  const VarMeta& input = ctx.input("Input");
  const int64_t rank = dims_known(input) ? static_cast<int64_t>(input.rank()) : -1;
  ctx.set_output("Out", DType::kInt32, {rank});
  return Ok();
}

Status infer_size(InferContext& ctx) {
  ctx.set_output("Out", DType::kInt64, llvm::ArrayRef<int64_t>{});
  return Ok();
}

}  // namespace
}  // namespace shape

/// shape, size
void add_tensor_shape(OpRegistry& registry) {
  using namespace shape;
  registry.add(OpDef("shape")
                   .doc("the dims of Input as a tensor")
                   .input("Input", "any shape; its data is not read")
                   .output("Out", "int32 [rank]")
                   .infer(infer));
  registry.add(OpDef("size")
                   .doc("the number of elements of Input")
                   .input("Input", "any shape; its data is not read")
                   .output("Out", "int64, one element; rank 0 in 2.6, [1] before")
                   .infer(infer_size));
}

}  // namespace millrace::ops
