#include <algorithm>

#include "framework/block.h"
#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace {

void set_values_and_indices(InferContext& ctx, VarMeta values) {
  VarMeta indices = values;
  indices.dtype = DType::kInt64;
  ctx.set_output("Out", std::move(values));
  ctx.set_output("Indices", std::move(indices));
}

// Errors: k is larger than the dim. In a sub-block this is left to the kernel, because a condition
// may keep the op from running with such a shape.
Status check_k(const InferContext& ctx, const VarMeta& x, int64_t axis, int64_t k) {
  const int64_t size = x.dims[static_cast<size_t>(axis)];
  if (size < 0 || k <= size || ctx.op().block().parent() >= 0) return Ok();
  return ctx.error("attribute 'k' is {}, but dim {} of X {} has only {} elements", k, axis,
                   dims_text(x.dims), size);
}

// The k largest elements along an axis. The size is unknown if K is a tensor.
Status infer_top(InferContext& ctx, int64_t axis_attr) {
  VarMeta x = ctx.input("X");
  if (!x.has_shape) {
    set_values_and_indices(ctx, unknown_like(x));
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const int64_t axis, checked_axis(ctx, "axis", axis_attr, x.rank()));
  const auto k = ctx.attr<int64_t>("k");
  const bool dynamic = ctx.has_input("K");
  if (x.rank() > 0) {
    if (!dynamic) MILLRACE_RETURN_IF_ERROR(check_k(ctx, x, axis, k));
    x.dims[static_cast<size_t>(axis)] = dynamic ? -1 : k;
  }
  set_values_and_indices(ctx, std::move(x));
  return Ok();
}

Status infer_top_k(InferContext& ctx) {
  return infer_top(ctx, -1);
}

Status infer_top_k_v2(InferContext& ctx) {
  return infer_top(ctx, ctx.attr<int64_t>("axis"));
}

Status infer_argsort(InferContext& ctx) {
  VarMeta x = ctx.input("X");
  if (x.has_shape) {
    MILLRACE_RETURN_IF_ERROR(
        checked_axis(ctx, "axis", ctx.attr<int64_t>("axis"), x.rank()).status());
  }
  set_values_and_indices(ctx, std::move(x));
  return Ok();
}

Status infer_kthvalue(InferContext& ctx) {
  VarMeta x = ctx.input("X");
  if (!x.has_shape) {
    set_values_and_indices(ctx, unknown_like(x));
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const int64_t axis,
                            checked_axis(ctx, "axis", ctx.attr<int64_t>("axis"), x.rank()));
  const auto k = ctx.attr<int64_t>("k");
  if (x.rank() > 0) {
    MILLRACE_RETURN_IF_ERROR(check_k(ctx, x, axis, k));
    MILLRACE_ASSIGN_OR_RETURN(x.dims, reduced_dims(ctx, "axis", x.dims, {axis}, /*all=*/false,
                                                   ctx.attr<bool>("keepdim")));
  }
  set_values_and_indices(ctx, std::move(x));
  return Ok();
}

OpDef values_and_indices(llvm::StringRef type) {
  OpDef def(type);
  def.input("X", "any shape")
      .output("Out", "the values")
      .output("Indices", "int64; their indices along the axis in X");
  return def;
}

}  // namespace

/// argsort, kthvalue, top_k, top_k_v2
void add_tensor_order(OpRegistry& registry) {
  registry.add(values_and_indices("top_k")
                   .doc("the k largest elements of each row, largest first")
                   .input("K", "one element; replaces the attribute", Arity::kOptional)
                   .attr("k", 1, "how many")
                   .range(1)
                   .infer(infer_top_k)
                   .grad(without_offsets(grad_of_x("top_k_grad", {"X", "Indices"}))));
  registry.add(values_and_indices("top_k_v2")
                   .doc("the k largest (or smallest) elements along an axis")
                   .input("K", "one element; replaces the attribute", Arity::kOptional)
                   .attr("k", 1, "how many; -1 if K is given")
                   .range(-1)
                   .attr("axis", -1, "dim to look along")
                   .attr("largest", true, "false: the smallest")
                   .attr("sorted", true, "in order; the result is in order anyway")
                   .infer(infer_top_k_v2)
                   .grad(grad_of_x("top_k_v2_grad", {"X", "Indices", "K"})));
  registry.add(values_and_indices("argsort")
                   .doc("sorts along an axis")
                   .attr("axis", -1, "dim to sort along")
                   .attr("descending", false, "largest first")
                   .infer(infer_argsort)
                   .grad(grad_of_x("argsort_grad", {"X", "Indices"})));
  registry.add(values_and_indices("kthvalue")
                   .doc("the k-th smallest element along an axis")
                   .attr("k", 1, "1: the smallest")
                   .range(1)
                   .attr("axis", -1, "dim to look along")
                   .attr("keepdim", false, "keep the dim with size 1")
                   .infer(infer_kthvalue)
                   .grad(grad_of_x("kthvalue_grad", {"X", "Indices"})));
}

}  // namespace millrace::ops
