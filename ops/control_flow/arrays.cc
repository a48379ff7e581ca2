#include "ops/grad_rules.h"
#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Tensor arrays: lists of tensors that grow on write. The meta of an array describes its elements.
namespace millrace::ops {
namespace {

Status infer_write(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_elements(ctx, "I", 1));
  if (!ctx.has_input("X")) return Ok();
  VarMeta meta = ctx.input("X");
  meta.kind = VarKind::kLodTensorArray;
  ctx.set_output("Out", std::move(meta));
  return Ok();
}

Status infer_read(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_elements(ctx, "I", 1));
  VarMeta meta = ctx.input("X");
  if (!meta.has_shape) return Ok();
  meta.kind = VarKind::kLodTensor;
  ctx.set_output("Out", std::move(meta));
  return Ok();
}

StatusOr<std::vector<GradOp>> grad_write(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("X");
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op("read_from_array");
  op.input("I", ctx.input("I"))
      .input("X", ctx.output_grad("Out"))
      .input("X_W", ctx.input("X"))
      .output("Out", std::move(wanted));
  copy_attrs(ctx, op);
  return one_grad_op(std::move(op));
}

StatusOr<std::vector<GradOp>> grad_read(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("X");
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op("write_to_array");
  op.input("I", ctx.input("I")).input("X", ctx.output_grad("Out")).output("Out", std::move(wanted));
  copy_attrs(ctx, op);
  return one_grad_op(std::move(op));
}

Status infer_length(InferContext& ctx) {
  ctx.set_output("Out", DType::kInt64, {1});
  return Ok();
}

// The number of elements is known at run time only, so the joined dim is unknown.
Status infer_join(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  ctx.set_output("OutIndex", DType::kInt32, {-1});
  if (!dims_known(x)) return Ok();
  const bool stack = ctx.attr<bool>("use_stack");
  const size_t rank = x.rank() + (stack ? 1 : 0);
  int64_t axis = 0;
  MILLRACE_ASSIGN_OR_RETURN(axis, checked_axis(ctx, "axis", ctx.attr<int32_t>("axis"), rank));
  VarMeta out = tensor_meta(x.dtype, x.dims);
  if (stack) {
    out.dims.insert(out.dims.begin() + axis, -1);
  } else if (!out.dims.empty()) {
    out.dims[static_cast<size_t>(axis)] = -1;
  }
  ctx.set_output("Out", std::move(out));
  return Ok();
}

}  // namespace

void add_control_flow_arrays(OpRegistry& registry) {
  registry.add(OpDef("write_to_array")
                   .doc("Out[I] = X; the array grows as needed")
                   .input("X", "any shape", Arity::kOne, kTensorLike | kTensorArray)
                   .input("I", "one index")
                   .output("Out", "the array", Arity::kOne, kTensorArray)
                   .infer(infer_write)
                   .grad(grad_write));
  registry.add(
      OpDef("read_from_array")
          .doc("Out = X[I]")
          .input("X", "the array", Arity::kOne, kTensorArray)
          .input("I", "one index")
          .input("X_W", "shape of the zeros to return if X[I] was never written", Arity::kOptional)
          .output("Out", "the element")
          .infer(infer_read)
          .grad(grad_read));
  registry.add(OpDef("lod_array_length")
                   .doc("number of elements of an array")
                   .input("X", "the array", Arity::kOne, kTensorArray)
                   .output("Out", "one int64")
                   .infer(infer_length));
  registry.add(OpDef("tensor_array_to_tensor")
                   .doc("joins or stacks the elements of an array")
                   .input("X", "the array", Arity::kOne, kTensorArray)
                   .output("Out", "joined on axis")
                   .intermediate("OutIndex", "size of each element on axis")
                   .attr("axis", 0, "dim to join or to insert")
                   .attr("use_stack", false, "insert a dim instead of joining")
                   .infer(infer_join)
                   .grad({"tensor_array_to_tensor_grad", {"Out@GRAD", "X"}, {"X@GRAD"}, {}}));
}

}  // namespace millrace::ops
