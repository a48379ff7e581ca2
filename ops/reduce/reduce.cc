#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace reduce_ops {
namespace {

// Dims when the axes come from tensors; nullopt if the rank of the result is not known.
std::optional<Dims> dims_with_axis_tensor(const InferContext& ctx, const VarMeta& x,
                                          bool keep_dim) {
  if (keep_dim) return Dims(x.rank(), -1);
  const VarMeta& axes = ctx.input("AxisTensor");
  int64_t count = static_cast<int64_t>(ctx.input_count("AxisTensorList"));
  if (count == 0) count = dims_known(axes) ? dims_product(axes.dims) : -1;
  if (count < 0 || count > static_cast<int64_t>(x.rank())) return std::nullopt;
  return Dims(x.rank() - static_cast<size_t>(count), -1);
}

bool has_axis_tensor(const InferContext& ctx) {
  return ctx.has_input("AxisTensor") || ctx.has_input("AxisTensorList");
}

Status set_reduced(InferContext& ctx, DType dtype) {
  const VarMeta& x = ctx.input("X");
  const bool keep_dim = ctx.attr<bool>("keep_dim");
  const bool all = ctx.attr<bool>("reduce_all");
  const auto axes = ctx.attr<std::vector<int64_t>>("dim");
  std::optional<Dims> dims;
  if (dims_known(x)) {
    if (has_axis_tensor(ctx) && !all) {
      dims = dims_with_axis_tensor(ctx, x, keep_dim);
    } else {
      MILLRACE_ASSIGN_OR_RETURN(dims, reduced_dims(ctx, "dim", x.dims, axes, all, keep_dim));
    }
  }
  if (!dims) {
    ctx.set_output("Out", shapeless_meta(dtype));
    return Ok();
  }
  // The LoD levels remain valid if dim 0 is not reduced.
  const bool keeps_rows = !all && !axes.empty() && axes[0] != 0 && !dims->empty();
  // levels are declared, but offsets are not passed on
  ctx.set_output("Out", tensor_meta(dtype, *dims, keeps_rows ? x.lod_level : 0));
  return Ok();
}

// Uses the element type in attribute out_dtype, or the fallback if it is -1.
Status set_reduced_or(InferContext& ctx, DType fallback) {
  if (ctx.attr<int32_t>("out_dtype") == -1) return set_reduced(ctx, fallback);
  MILLRACE_ASSIGN_OR_RETURN(const DType dtype, checked_dtype(ctx, "out_dtype"));
  return set_reduced(ctx, dtype);
}

Status infer(InferContext& ctx) {
  return set_reduced_or(ctx, ctx.input("X").dtype);
}

// Sums of bool and int32 are int64, so that they do not overflow.
Status infer_sum(InferContext& ctx) {
  const DType dtype = ctx.input("X").dtype;
  const bool widened = dtype == DType::kBool || dtype == DType::kInt32;
  return set_reduced_or(ctx, widened ? DType::kInt64 : dtype);
}

Status infer_bool(InferContext& ctx) {
  return set_reduced(ctx, DType::kBool);
}

OpDef reduce(llvm::StringRef type, llvm::StringRef doc, InferFn infer_fn) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "any shape")
      .input("AxisTensor", "axes as a tensor; replaces dim", Arity::kOptional)
      .input("AxisTensorList", "axes, one per tensor; replaces dim", Arity::kAny)
      .output("Out", "X without the reduced dims, or with size 1 for them")
      .attr("dim", std::vector<int32_t>{0}, "axes to reduce; empty: all")
      .attr("keep_dim", false, "keep reduced dims with size 1")
      .attr("reduce_all", false, "reduce every axis, regardless of dim")
      .attr("in_dtype", -1, "element type to convert X to first; -1: none")
      .attr("out_dtype", -1, "element type of Out; -1: that of X")
      .infer(infer_fn)
      .flops(elementwise_flops);
  return def;
}

GradSpec from_x(llvm::StringRef type) {
  return {type, {"Out@GRAD", "X"}, {"X@GRAD"}, {}};
}
GradSpec from_both(llvm::StringRef type) {
  return {type, {"Out", "Out@GRAD", "X"}, {"X@GRAD"}, {}};
}

}  // namespace
}  // namespace reduce_ops

/// reduce_sum, reduce_mean, reduce_max, reduce_min, reduce_prod, reduce_all, reduce_any and
/// frobenius_norm.
void add_reduce_reduce(OpRegistry& registry) {
  using namespace reduce_ops;
  registry.add(reduce("reduce_sum", "sum over axes", infer_sum).grad(from_x("reduce_sum_grad")));
  registry.add(reduce("reduce_mean", "mean over axes", infer).grad(from_x("reduce_mean_grad")));
  registry.add(reduce("reduce_max", "maximum over axes", infer).grad(from_both("reduce_max_grad")));
  registry.add(reduce("reduce_min", "minimum over axes", infer).grad(from_both("reduce_min_grad")));
  registry.add(
      reduce("reduce_prod", "product over axes", infer).grad(from_both("reduce_prod_grad")));
  registry.add(reduce("frobenius_norm", "square root of the sum of squares over axes", infer)
                   .grad(from_both("frobenius_norm_grad")));
  registry.add(reduce("reduce_all", "whether all elements over axes are true", infer_bool));
  registry.add(reduce("reduce_any", "whether any element over axes is true", infer_bool));
}

}  // namespace millrace::ops
