#include "ops/random/create.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace fill_ops {
namespace {

Status infer_filled(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(infer_created(ctx));
  const auto shape = ctx.attr<std::vector<int64_t>>("shape");
  const auto values = ctx.attr<std::vector<float>>("value").size();
  const int64_t elements = dims_product(shape);
  if (elements >= 0 && static_cast<size_t>(elements) != values) {
    return ctx.error("attribute 'value' has {} values, but 'shape' {} requires {}", values,
                     dims_text(shape), elements);
  }
  return Ok();
}

// As X, with another element type unless dtype is -1.
Status infer_like(InferContext& ctx) {
  VarMeta out = ctx.input("X");
  if (ctx.attr<int32_t>("dtype") != -1) {
    MILLRACE_ASSIGN_OR_RETURN(out.dtype, checked_dtype(ctx, "dtype"));
  }
  ctx.set_output("Out", std::move(out));
  return Ok();
}

OpDef like_x(llvm::StringRef type, llvm::StringRef doc, InferFn infer) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "determines shape and LoD", Arity::kOne, kTensorLike | kTensorArray)
      .output("Out", "shape and LoD of X", Arity::kOne, kTensorLike | kTensorArray)
      .infer(infer);
  return def;
}

}  // namespace
}  // namespace fill_ops

/// Ops that fill a tensor with one value or with given values.
void add_random_fill(OpRegistry& registry) {
  using namespace fill_ops;
  OpDef constant("fill_constant");
  constant.doc("tensor with one value everywhere")
      .input("ValueTensor", "one element; replaces value", Arity::kOptional);
  registry.add(
      with_shape_and_dtype(constant, 5)
          .attr("value", 0.0F, "the value")
          .attr("str_value", "", "the value as text, exact for int64; replaces value if not empty")
          .attr("force_cpu", false, "keep the result in host memory")
          .attr("place_type", -1, "device of the result; -1: that of the op"));

  OpDef batch_size_like("fill_constant_batch_size_like");
  batch_size_like.doc("tensor with one value everywhere and one dim of another tensor");
  registry.add(
      with_batch_size_like(batch_size_like)
          .attr("value", 0.0F, "the value")
          .attr("str_value", "", "the value as text, exact for int64; replaces value if not empty")
          .attr("force_cpu", false, "keep the result in host memory"));

  registry.add(OpDef("fill")
                   .doc("tensor with the given values")
                   .output("Out", "the new tensor")
                   .required_attr<std::vector<float>>("value", "elements in row-major order")
                   .required_attr<std::vector<int32_t>>("shape", "dims of Out")
                   .range(0)
                   .attr("dtype", 5, "element type of Out")
                   .attr("force_cpu", false, "keep the result in host memory")
                   .infer(infer_filled));

  registry.add(like_x("fill_any_like", "tensor with one value and the shape of X", infer_like)
                   .attr("value", 0.0F, "the value")
                   .attr("dtype", -1, "element type of Out; -1: that of X"));
  registry.add(like_x("fill_zeros_like", "zeros with the shape of X", infer_unary));
  registry.add(like_x("fill_zeros_like2", "zeros with the shape of X", infer_like)
                   .attr("dtype", 5, "element type of Out"));
}

}  // namespace millrace::ops
