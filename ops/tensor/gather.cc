#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace {

// An index is a vector, a matrix with one column, or (2.x) a scalar.
Status check_index(const InferContext& ctx, const VarMeta& index) {
  if (!index.has_shape || index.rank() < 2) return Ok();
  if (index.rank() == 2 && dims_agree(index.dims[1], 1)) return Ok();
  return ctx.error("Index must have rank 0 or 1 or be [n, 1], found {}", dims_text(index.dims));
}

// The dims of X with dim axis replaced by the length of Index, or dropped if Index is a scalar.
Dims picked(const VarMeta& x, const VarMeta& index, size_t axis) {
  Dims dims = x.dims;
  if (index.rank() == 0) {
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
  } else {
    dims[axis] = index.dims[0];
  }
  return dims;
}

Status infer_picked(InferContext& ctx, llvm::StringRef axis_attr) {
  const VarMeta x = ctx.input("X");
  const VarMeta index = ctx.input("Index");
  MILLRACE_RETURN_IF_ERROR(check_index(ctx, index));
  if (!x.has_shape || !index.has_shape) {
    ctx.set_output("Out", unknown_like(x));
    return Ok();
  }
  if (x.rank() == 0) return ctx.error("X must have at least one dim");
  if (ctx.has_input("Axis")) {
    const size_t rank = index.rank() == 0 ? x.rank() - 1 : x.rank();
    ctx.set_output("Out", tensor_meta(x.dtype, Dims(rank, -1)));
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const int64_t axis,
                            checked_axis(ctx, axis_attr, ctx.attr<int64_t>(axis_attr), x.rank()));
  ctx.set_output("Out", with_dims(x, picked(x, index, static_cast<size_t>(axis))));
  return Ok();
}

Status infer_gather_op(InferContext& ctx) {
  return infer_picked(ctx, "axis");
}

Status infer_index_select(InferContext& ctx) {
  return infer_picked(ctx, "dim");
}

Status infer_gather_nd(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  const VarMeta index = ctx.input("Index");
  if (!x.has_shape || !index.has_shape || (index.rank() > 0 && index.dims.back() < 0)) {
    ctx.set_output("Out", with_offsets_of(unknown_like(x), x));
    return Ok();
  }
  if (index.rank() == 0) return ctx.error("Index must have at least one dim");
  const int64_t depth = index.dims.back();
  if (depth > static_cast<int64_t>(x.rank())) {
    return ctx.error("the last dim of Index {} must be at most the rank of X {}",
                     dims_text(index.dims), dims_text(x.dims));
  }
  Dims dims(index.dims.begin(), index.dims.end() - 1);
  dims.append(x.dims.begin() + depth, x.dims.end());
  ctx.set_output("Out", with_offsets_of(tensor_meta(x.dtype, dims), x));
  return Ok();
}

Status infer_index_sample(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Index", 2, 2));
  const VarMeta x = ctx.input("X");
  const VarMeta index = ctx.input("Index");
  if (x.has_shape && index.has_shape && !dims_agree(x.dims[0], index.dims[0])) {
    return ctx.error("X {} and Index {} must have the same number of rows", dims_text(x.dims),
                     dims_text(index.dims));
  }
  VarMeta out = index;
  out.dtype = x.dtype;
  out.lod_level = x.lod_level;
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_gather_tree(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Ids", 3, 3));
  MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "Ids", "Parents"));
  ctx.set_output("Out", without_offsets(ctx.input("Ids")));
  return Ok();
}

}  // namespace

/// gather, gather_nd, gather_tree, index_sample, index_select
void add_tensor_gather(OpRegistry& registry) {
  registry.add(OpDef("gather")
                   .doc("the slices of X along axis that Index names")
                   .input("X", "at least one dim")
                   .input("Index", "int32 or int64; [n], [n, 1] or a single number")
                   .input("Axis", "one element; replaces the attribute", Arity::kOptional)
                   .output("Out", "X with dim axis as long as Index")
                   .attr("axis", 0, "dim to pick from")
                   .attr("overwrite", true, "of the gradient: set rows, do not add; no effect here")
                   .infer(infer_gather_op)
                   .grad(grad_of_x("gather_grad", {"X", "Index", "Axis"})));
  registry.add(OpDef("gather_nd")
                   .doc("the slices of X at the coordinates in the last dim of Index")
                   .input("X", "at least as many dims as the last dim of Index is large")
                   .input("Index", "int32 or int64; coordinates in the last dim")
                   .output("Out", "Index without its last dim, then the rest of X")
                   .infer(infer_gather_nd)
                   .grad(grad_of_x("gather_nd_grad", {"X", "Index"})));
  registry.add(OpDef("index_select")
                   .doc("the slices of X along dim that Index names")
                   .input("X", "at least one dim")
                   .input("Index", "int32 or int64; a vector")
                   .output("Out", "X with dim as long as Index")
                   .attr("dim", 0, "dim to pick from")
                   .infer(infer_index_select)
                   .grad(grad_of_x("index_select_grad", {"X", "Index"})));
  registry.add(OpDef("index_sample")
                   .doc("from each row of X the elements that the same row of Index names")
                   .input("X", "a matrix")
                   .input("Index", "int32 or int64; as many rows as X")
                   .output("Out", "shape of Index, dtype of X")
                   .infer(infer_index_sample)
                   .grad(grad_of_x("index_sample_grad", {"X", "Index"})));
  registry.add(OpDef("gather_tree")
                   .doc("full sequences of a beam search, followed back from the last step")
                   .input("Ids", "[steps, batch, beams], selected ids")
                   .input("Parents", "shape of Ids; beam each id came from")
                   .output("Out", "shape of Ids")
                   .infer(infer_gather_tree));
}

}  // namespace millrace::ops
