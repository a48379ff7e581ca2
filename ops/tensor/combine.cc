#include "ops/grad.h"
#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace {

// One dim per operand; an operand of rank 0 counts as a vector with one element.
Status infer_meshgrid(InferContext& ctx) {
  const size_t count = ctx.input_count("X");
  Dims dims;
  for (size_t i = 0; i < count; ++i) {
    const VarMeta& x = ctx.input("X", i);
    if (x.has_shape && x.rank() > 1) {
      return ctx.error("X[{}] must have rank 0 or 1, found {}", i, dims_text(x.dims));
    }
    dims.push_back(!x.has_shape ? -1 : x.rank() == 0 ? 1 : x.dims[0]);
  }
  if (ctx.output_count("Out") != count) {
    return ctx.error("Out must have a var for each of the {} of X, found {}", count,
                     ctx.output_count("Out"));
  }
  for (size_t i = 0; i < count; ++i)
    ctx.set_output("Out", tensor_meta(ctx.input("X", i).dtype, dims), i);
  return Ok();
}

// The input slot of the gradient op has another name than the output slot of the forward op.
StatusOr<std::vector<GradOp>> meshgrid_grad(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("X", /*keep_places=*/true);
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op("meshgrid_grad");
  op.input("X", ctx.input("X")).input("outputs@GRAD", ctx.output_grad("Out"));
  op.output("X@GRAD", std::move(wanted));
  return std::vector<GradOp>{std::move(op)};
}

Status infer_meshgrid_grad(InferContext& ctx) {
  copy_each(ctx, "X", "X@GRAD");
  return Ok();
}

Status infer_multiplex(InferContext& ctx) {
  const VarMeta first = ctx.input("X");
  for (size_t i = 1; i < ctx.input_count("X"); ++i) {
    const VarMeta& x = ctx.input("X", i);
    if (x.has_shape && first.has_shape && x.rank() != first.rank()) {
      return ctx.error("X[{}] {} must have the shape of X[0] {}", i, dims_text(x.dims),
                       dims_text(first.dims));
    }
  }
  ctx.set_output("Out", without_offsets(first));
  return Ok();
}

Status infer_multiplex_grad(InferContext& ctx) {
  const bool has_x = ctx.has_input("X");
  for (size_t i = 0; i < ctx.op().output("X@GRAD").size(); ++i)  // some may be absent
    ctx.set_output("X@GRAD", without_offsets(has_x ? ctx.input("X", i) : ctx.input("Out@GRAD")), i);
  return Ok();
}

// Number of columns that are used of each operand; -1 if unknown.
StatusOr<int64_t> part_width(const InferContext& ctx) {
  int64_t columns = -1;
  for (size_t i = 0; i < ctx.input_count("X"); ++i) {
    const VarMeta& x = ctx.input("X", i);
    if (!x.has_shape) continue;
    if (x.rank() != 2) {
      return ctx.error("X[{}] must be a matrix, found {}", i, dims_text(x.dims));
    }
    if (!dims_agree(columns, x.dims[1])) {
      return ctx.error("X[{}] {} must have {} columns as the others", i, dims_text(x.dims),
                       columns);
    }
    if (columns < 0) columns = x.dims[1];
  }
  const int64_t start = ctx.attr<int32_t>("start_index");
  const int64_t length = ctx.attr<int32_t>("length");
  if (columns < 0) return length;
  const int64_t from = start < 0 ? start + columns : start;
  const int64_t width = length < 0 ? columns - from : length;
  if (from < 0 || width > columns - from) {
    return ctx.error("attributes 'start_index' ({}) and 'length' ({}) leave the {} columns of X",
                     start, length, columns);
  }
  return width;
}

Status infer_partial(InferContext& ctx, int64_t operands) {
  const VarMeta first = ctx.input("X");
  MILLRACE_ASSIGN_OR_RETURN(const int64_t width, part_width(ctx));
  const int64_t rows = first.has_shape ? first.dims[0] : -1;
  ctx.set_output(
      "Out",
      with_offsets_of(tensor_meta(first.dtype, {rows, dims_product({width, operands})}), first));
  return Ok();
}

Status infer_partial_concat(InferContext& ctx) {
  return infer_partial(ctx, static_cast<int64_t>(ctx.input_count("X")));
}

Status infer_partial_sum(InferContext& ctx) {
  return infer_partial(ctx, 1);
}

OpDef partial(llvm::StringRef type, llvm::StringRef grad_type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "matrices of one shape", Arity::kMany)
      .output("Out", "a matrix with the rows of X")
      .attr("start_index", 0, "first column; negative: from the end")
      .attr("length", -1, "number of columns; -1: all that follow")
      .range(-1)
      .grad(grad_of_x(grad_type, {"X"}));
  return def;
}

}  // namespace

/// meshgrid, multiplex, partial_concat, partial_sum
void add_tensor_combine(OpRegistry& registry) {
  registry.add(OpDef("meshgrid")
                   .doc("each vector repeated over the dims of the others")
                   .input("X", "vectors", Arity::kMany)
                   .output("Out", "one for each vector; dim i is as long as X[i]", Arity::kMany)
                   .infer(infer_meshgrid)
                   .grad(meshgrid_grad));
  registry.add(OpDef("meshgrid_grad")
                   .doc("sums over the dims that meshgrid repeated")
                   .input("X", "the vectors", Arity::kAny)
                   .input("outputs@GRAD", "gradients of the grids", Arity::kAny)
                   .input("Out@GRAD", "gradients of the grids in old programs", Arity::kAny)
                   .output("X@GRAD", "gradients of the vectors", Arity::kAny)
                   .infer(infer_meshgrid_grad));
  registry.add(OpDef("multiplex")
                   .doc("row i of Out is row i of the operand that Ids[i] names")
                   .input("X", "all of one shape", Arity::kMany)
                   .input("Ids", "int32 [rows, 1]; which operand")
                   .output("Out", "shape of one operand")
                   .infer(infer_multiplex)
                   .grad({.type = "multiplex_grad",
                          .inputs = {"Ids", "X", "Out@GRAD"},
                          .outputs = {"X@GRAD"},
                          .infer = infer_multiplex_grad}));
  registry.add(partial("partial_concat", "partial_concat_grad",
                       "the same columns of every operand, concatenated")
                   .infer(infer_partial_concat));
  registry.add(
      partial("partial_sum", "partial_sum_grad", "the sum over the same columns of every operand")
          .infer(infer_partial_sum));
}

}  // namespace millrace::ops
