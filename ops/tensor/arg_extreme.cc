#include "ops/infer_helpers.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace arg_extreme {
namespace {

StatusOr<DType> index_type(const InferContext& ctx) {
  const auto number = ctx.attr<int32_t>("dtype");
  if (number == -1) return DType::kInt64;
  const auto dtype = static_cast<DType>(number);
  if (dtype == DType::kInt32 || dtype == DType::kInt64) return dtype;
  return ctx.error("attribute 'dtype' must be int32 (2), int64 (3) or -1, found {}", number);
}

Status infer(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  MILLRACE_ASSIGN_OR_RETURN(const DType dtype, index_type(ctx));
  if (!x.has_shape) {
    ctx.set_output("Out", shapeless_meta(dtype));
    return Ok();
  }
  const bool flatten = ctx.attr<bool>("flatten");
  const auto axis = flatten ? int64_t{0} : ctx.attr<int64_t>("axis");
  MILLRACE_ASSIGN_OR_RETURN(const Dims dims, reduced_dims(ctx, "axis", x.dims, {axis}, flatten,
                                                          ctx.attr<bool>("keepdims")));
  ctx.set_output("Out", tensor_meta(dtype, dims));
  return Ok();
}

OpDef family(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "any shape")
      .output("Out", "dims of X without axis; integers")
      .required_attr<int64_t>("axis", "dim to look along")
      .attr("keepdims", false, "keep the dim with size 1")
      .attr("flatten", false, "look at all elements at once, axis is not read")
      .attr("dtype", 3, "element type of Out: 2 int32, 3 int64, -1 int64")
      .infer(infer);
  return def;
}

}  // namespace
}  // namespace arg_extreme

/// arg_max, arg_min
void add_tensor_arg_extreme(OpRegistry& registry) {
  using namespace arg_extreme;
  registry.add(family("arg_max", "index of the largest element; the first of equal ones"));
  registry.add(family("arg_min", "index of the smallest element; the first of equal ones"));
}

}  // namespace millrace::ops
