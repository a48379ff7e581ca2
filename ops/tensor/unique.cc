#include "ops/infer_helpers.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace unique_ops {
namespace {

Status infer(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  const DType index = ctx.dtype_attr("dtype");
  const auto axes = ctx.attr<std::vector<int64_t>>("axis");
  ctx.set_output("Indices", index, {-1});
  ctx.set_output("Counts", index, {-1});
  if (!x.has_shape) {
    ctx.set_output("Out", unknown_like(x));
    ctx.set_output("Index", index, {-1});
    return Ok();
  }
  if (axes.empty()) {
    ctx.set_output("Out", x.dtype, {-1});
    ctx.set_output("Index", index, {dims_product(x.dims)});
    return Ok();
  }
  if (axes.size() > 1) {
    return ctx.error("attribute 'axis' must name at most one dim, found {}", dims_text(axes));
  }
  MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, checked_axis(ctx, "axis", axes[0], x.rank()));
  Dims dims = x.dims;
  const int64_t size = dims.empty() ? 1 : dims[static_cast<size_t>(axis)];
  if (!dims.empty()) dims[static_cast<size_t>(axis)] = -1;
  ctx.set_output("Out", tensor_meta(x.dtype, dims));
  ctx.set_output("Index", index, {size});
  return Ok();
}

Status infer_with_counts(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 1, 1));
  const VarMeta x = ctx.input("X");
  const DType index = ctx.dtype_attr("dtype");
  ctx.set_output("Out", x.dtype, {-1});
  ctx.set_output("Index", index, {x.has_shape ? x.dims[0] : -1});
  ctx.set_output("Count", index, {-1});
  return Ok();
}

}  // namespace
}  // namespace unique_ops

/// unique, unique_with_counts
void add_tensor_unique(OpRegistry& registry) {
  using namespace unique_ops;
  registry.add(
      OpDef("unique")
          .doc("the distinct elements, in order of first occurrence or sorted")
          .input("X", "any shape; a vector unless is_sorted")
          .output("Out", "the distinct elements")
          .output("Indices", "where each first occurs", Arity::kOptional)
          .output("Index", "for each element of X its index in Out", Arity::kOptional)
          .output("Counts", "how often each occurs", Arity::kOptional)
          .attr("return_index", false, "fill Indices")
          .attr("return_inverse", false, "fill Index")
          .attr("return_counts", false, "fill Counts")
          .attr("axis", std::vector<int32_t>{}, "dim whose slices are compared; empty: elements")
          .attr("dtype", 3, "element type of the indices: 2 int32, 3 int64")
          .range(2, 3)
          .attr("is_sorted", false, "sort; false: order of first occurrence")
          .infer(infer));
  registry.add(OpDef("unique_with_counts")
                   .doc("the distinct elements in order of first occurrence, and how many of each")
                   .input("X", "a vector")
                   .output("Out", "the distinct elements")
                   .output("Index", "for each element of X its index in Out")
                   .output("Count", "how often each occurs")
                   .required_attr<int32_t>("dtype", "element type of the indices: 2 or 3")
                   .range(2, 3)
                   .infer(infer_with_counts));
}

}  // namespace millrace::ops
