#include <cstdlib>

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

// Ops on the diagonals of matrices that two dims of a tensor hold: sums of diagonals, and matrices
// built from diagonals.
namespace millrace::ops {
namespace {

// Both axes as non-negative numbers. Errors: an axis is out of range, or both are the same.
StatusOr<std::pair<size_t, size_t>> two_axes(const InferContext& ctx, const char* first,
                                             const char* second, size_t rank) {
  MILLRACE_ASSIGN_OR_RETURN(const int64_t a,
                            checked_axis(ctx, first, ctx.attr<int64_t>(first), rank));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t b,
                            checked_axis(ctx, second, ctx.attr<int64_t>(second), rank));
  if (a == b)
    return ctx.error("attributes '{}' and '{}' are both dim {}, expected two dims", first, second,
                     a);
  return std::pair(static_cast<size_t>(a), static_cast<size_t>(b));
}

Status infer_trace(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Input", 2, 64));
  const VarMeta& x = ctx.input("Input");
  if (!dims_known(x)) {
    ctx.set_output("Out", unknown_like(x));
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const auto axes, two_axes(ctx, "axis1", "axis2", x.rank()));
  Dims dims;
  for (size_t i = 0; i < x.rank(); ++i) {
    if (i != axes.first && i != axes.second) dims.push_back(x.dims[i]);
  }
  ctx.set_output("Out", x.dtype, dims);
  return Ok();
}

Status infer_diag_embed(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Input", 1, 64));
  const VarMeta& x = ctx.input("Input");
  if (!dims_known(x)) {
    ctx.set_output("Out", unknown_like(x));
    return Ok();
  }
  const size_t rank = x.rank() + 1;
  MILLRACE_ASSIGN_OR_RETURN(const auto axes, two_axes(ctx, "dim1", "dim2", rank));
  const int64_t offset = ctx.attr<int32_t>("offset");
  int64_t size = -1;
  if (x.dims.back() >= 0 && __builtin_add_overflow(x.dims.back(), std::abs(offset), &size))
    size = -1;
  Dims dims;
  size_t next = 0;
  for (size_t i = 0; i < rank; ++i)
    dims.push_back(i == axes.first || i == axes.second ? size : x.dims[next++]);
  ctx.set_output("Out", x.dtype, dims);
  return Ok();
}

}  // namespace

/// trace, diag_embed
void add_tensor_diagonals(OpRegistry& registry) {
  registry.add(OpDef("trace")
                   .doc("sum of a diagonal of each matrix that two dims hold")
                   .input("Input", "at least two dims")
                   .output("Out", "the other dims of Input")
                   .attr("offset", 0, "0 main diagonal, positive above it, negative below")
                   .attr("axis1", 0, "one of the two dims; the smaller one has the rows")
                   .attr("axis2", 1, "the other one")
                   .infer(infer_trace)
                   .grad({.type = "trace_grad",
                          .inputs = {"Input", "Out@GRAD"},
                          .outputs = {"Input@GRAD"},
                          .infer = infer_grad_without_offsets}));
  registry.add(OpDef("diag_embed")
                   .doc("matrices with the vectors of the last dim on a diagonal, else 0")
                   .input("Input", "at least one dim")
                   .output("Out", "one dim more than Input")
                   .attr("offset", 0, "0 main diagonal, positive above it, negative below")
                   .attr("dim1", -2, "dim of Out that holds the rows")
                   .attr("dim2", -1, "dim of Out that holds the columns")
                   .infer(infer_diag_embed));
}

}  // namespace millrace::ops
