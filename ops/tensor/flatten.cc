#include "ops/infer_helpers.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace flatten_ops {
namespace {

Status infer_matrix(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  set_xshape(ctx, x);
  Dims dims = {-1, -1};
  if (x.has_shape) {
    const auto axis = ctx.attr<int64_t>("axis");
    const auto rank = static_cast<int64_t>(x.rank());
    if (axis < -rank || axis > rank) {
      return ctx.error("attribute 'axis' is {}, which is outside of [-{}, {}] for X {}", axis, rank,
                       rank, dims_text(x.dims));
    }
    const auto cut = static_cast<size_t>(axis < 0 ? axis + rank : axis);
    const llvm::ArrayRef<int64_t> all = x.dims;
    dims = {dims_product(all.take_front(cut)), dims_product(all.drop_front(cut))};
    if (rank == 0) dims = {1};
  }
  ctx.set_output("Out", keep_lod_of_same_rows(x, dims));
  return Ok();
}

Status infer_range(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  set_xshape(ctx, x);
  if (!x.has_shape) {
    ctx.set_output("Out", unknown_like(x));
    return Ok();
  }
  const auto rank = x.rank();
  MILLRACE_ASSIGN_OR_RETURN(const int64_t start,
                            checked_axis(ctx, "start_axis", ctx.attr<int64_t>("start_axis"), rank));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t stop,
                            checked_axis(ctx, "stop_axis", ctx.attr<int64_t>("stop_axis"), rank));
  if (stop < start) {
    return ctx.error("attribute 'stop_axis' ({}) is before 'start_axis' ({}) in X {}", stop, start,
                     dims_text(x.dims));
  }
  Dims dims = {1};
  if (rank > 0) {
    const auto first = static_cast<size_t>(start);
    const auto count = static_cast<size_t>(stop - start + 1);
    const llvm::ArrayRef<int64_t> all = x.dims;
    dims.assign(all.begin(), all.begin() + start);
    dims.push_back(dims_product(all.slice(first, count)));
    dims.append(all.begin() + stop + 1, all.end());
  }
  ctx.set_output("Out", keep_lod_of_same_rows(x, dims));
  return Ok();
}

OpDef matrix_family(llvm::StringRef type) {
  OpDef def(type);
  def.doc("X as a matrix: the dims before axis are its rows, the others its columns")
      .input("X", "any shape")
      .output("Out", "a matrix; [1] for a tensor of rank 0")
      .attr("axis", 1, "first dim of the columns; 0: a single row")
      .infer(infer_matrix)
      .inplace("X", "Out");
  return def;
}

}  // namespace
}  // namespace flatten_ops

/// flatten, flatten2, flatten_contiguous_range
void add_tensor_flatten(OpRegistry& registry) {
  using namespace flatten_ops;
  registry.add(matrix_family("flatten").grad(grad_of_x("flatten_grad", {"X"})));
  registry.add(matrix_family("flatten2")
                   .intermediate("XShape", "0 and the dims of X; no data")
                   .grad(grad_by_xshape("flatten2_grad")));
  registry.add(OpDef("flatten_contiguous_range")
                   .doc("merges the dims from start_axis to stop_axis into one")
                   .input("X", "any shape")
                   .output("Out", "X with the dims merged; [1] for a tensor of rank 0")
                   .intermediate("XShape", "0 and the dims of X; no data")
                   .attr("start_axis", 1, "first dim to merge")
                   .attr("stop_axis", 1, "last dim to merge, included")
                   .infer(infer_range)
                   .grad(grad_by_xshape("flatten_contiguous_range_grad"))
                   .inplace("X", "Out"));
}

}  // namespace millrace::ops
