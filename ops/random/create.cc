#include "ops/random/create.h"

#include "framework/program.h"

namespace millrace::ops {

VarMeta as_declared(const InferContext& ctx, VarMeta meta) {
  const Var* const out = ctx.op().block().find_var_recursive(ctx.op().first_output("Out"));
  if (out != nullptr && out->kind() == VarKind::kSelectedRows) meta.kind = out->kind();
  return meta;
}

Status infer_created(InferContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(const DType dtype, checked_dtype(ctx, "dtype"));
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<Dims> dims, shape_from_attr(ctx));
  ctx.set_output("Out", as_declared(ctx, dims ? tensor_meta(dtype, *dims) : shapeless_meta(dtype)));
  return Ok();
}

Status infer_batch_size_like(InferContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(const DType dtype, checked_dtype(ctx, "dtype"));
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<Dims> shape, shape_from_attr(ctx));
  Dims dims = shape ? *shape : Dims{};
  const VarMeta& input = ctx.input("Input");
  const int32_t from = ctx.attr<int32_t>("input_dim_idx");
  const int32_t to = ctx.attr<int32_t>("output_dim_idx");
  if (to < 0 || static_cast<size_t>(to) >= dims.size()) {
    return ctx.error("attribute 'output_dim_idx' is {}, which is outside of [0, {}) for shape {}",
                     to, dims.size(), dims_text(dims));
  }
  int64_t size = -1;
  if (dims_known(input)) {
    if (from < 0 || static_cast<size_t>(from) >= input.rank()) {
      return ctx.error("attribute 'input_dim_idx' is {}, which is outside of [0, {}) for Input {}",
                       from, input.rank(), dims_text(input.dims));
    }
    // The number of sequences is known only at run time; ops that draw numbers count rows.
    const bool sequences = ctx.op().type() == "fill_constant_batch_size_like";
    if (!sequences || input.lod_level == 0 || from != 0)
      size = input.dims[static_cast<size_t>(from)];
  }
  dims[static_cast<size_t>(to)] = size;
  ctx.set_output("Out", as_declared(ctx, tensor_meta(dtype, dims)));
  return Ok();
}

OpDef& with_shape_and_dtype(OpDef& def, int32_t dtype) {
  return def.input("ShapeTensor", "the shape; replaces the attribute", Arity::kOptional)
      .input("ShapeTensorList", "the shape, one tensor per dim", Arity::kAny)
      .output("Out", "the new tensor")
      .attr("shape", std::vector<int64_t>{}, "dims of Out")
      .range(-1)
      .attr("dtype", dtype, "element type of Out")
      .infer(infer_created);
}

OpDef& with_batch_size_like(OpDef& def) {
  return def.input("Input", "one of its dims is copied")
      .output("Out", "the new tensor")
      .required_attr<std::vector<int32_t>>("shape", "dims of Out; one is replaced")
      .range(-1)
      .attr("input_dim_idx", 0, "dim of Input that is copied")
      .range(0)
      .attr("output_dim_idx", 0, "dim of Out that it replaces")
      .range(0)
      .attr("dtype", 5, "element type of Out")
      .infer(infer_batch_size_like);
}

}  // namespace millrace::ops
