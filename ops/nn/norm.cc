#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/nn/window.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace norm {
namespace {

// Statistics of 16 bit data are kept in 32 bits.
DType statistics_type(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16 ? DType::kFloat32 : dtype;
}

// Scale and Bias have count elements.
Status check_affine(const InferContext& ctx, int64_t count) {
  if (count < 0) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_elements(ctx, "Scale", count));
  return check_elements(ctx, "Bias", count);
}

// Mean and Variance have the dims that count rows.
Status infer_layer_norm(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  VarMeta statistics = shapeless_meta(statistics_type(x.dtype));
  if (x.has_shape) {
    const auto axis = ctx.attr<int64_t>("begin_norm_axis");
    if (axis >= static_cast<int64_t>(x.rank())) {
      return ctx.error("attribute 'begin_norm_axis' ({}) must be less than the rank of X {}", axis,
                       dims_text(x.dims));
    }
    const llvm::ArrayRef<int64_t> all = x.dims;
    const auto rows = static_cast<size_t>(axis);
    MILLRACE_RETURN_IF_ERROR(check_affine(ctx, dims_product(all.drop_front(rows))));
    statistics = tensor_meta(statistics.dtype, all.take_front(rows));
  }
  ctx.set_output("Y", x);
  ctx.set_output("Mean", statistics);
  ctx.set_output("Variance", statistics);
  return Ok();
}

Status infer_group_norm(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  const auto groups = ctx.attr<int64_t>("groups");
  if (groups < 1) return ctx.error("attribute 'groups' must be at least 1, found {}", groups);
  int64_t batch = -1;
  if (x.has_shape) {
    MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 64));
    batch = x.dims[0];
    const int64_t channels = x.dims[channel_dim(x, channels_last(ctx, "data_layout"))];
    if (channels >= 0 && channels % groups != 0) {
      return ctx.error("attribute 'groups' ({}) does not divide the {} channels of X {}", groups,
                       channels, dims_text(x.dims));
    }
    MILLRACE_RETURN_IF_ERROR(check_affine(ctx, channels));
  }
  ctx.set_output("Y", x);
  ctx.set_output("Mean", statistics_type(x.dtype), {batch, groups});
  ctx.set_output("Variance", statistics_type(x.dtype), {batch, groups});
  return Ok();
}

Status infer_instance_norm(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 5));
  const VarMeta x = ctx.input("X");
  int64_t instances = -1;
  if (x.has_shape) {
    instances = dims_product({x.dims[0], x.dims[1]});
    MILLRACE_RETURN_IF_ERROR(check_affine(ctx, x.dims[1]));
  }
  ctx.set_output("Y", x);
  ctx.set_output("SavedMean", statistics_type(x.dtype), {instances});
  ctx.set_output("SavedVariance", statistics_type(x.dtype), {instances});
  return Ok();
}

// About eight operations an element: two sums, normalization, scale and shift.
double flops(const InferContext& ctx) {
  return 8 * elementwise_flops(ctx);
}

OpDef normalization(llvm::StringRef type) {
  OpDef def(type);
  def.input("X", "at least two dims")
      .input("Scale", "factor", Arity::kOptional)
      .input("Bias", "summand", Arity::kOptional)
      .output("Y", "shape, dtype and LoD of X")
      .attr("epsilon", 1e-5F, "added to the variance")
      .range(0)
      .flops(flops);
  return def;
}

GradSpec grad(llvm::StringRef type, std::vector<llvm::StringRef> inputs) {
  GradSpec spec;
  spec.type = type;
  spec.inputs = std::move(inputs);
  spec.inputs.push_back("Y@GRAD");
  spec.outputs = {"X@GRAD", "Scale@GRAD", "Bias@GRAD"};
  spec.shape_like = {{"Bias@GRAD", "Scale"}};
  return spec;
}

}  // namespace
}  // namespace norm

/// layer_norm, group_norm, instance_norm
void add_nn_norm(OpRegistry& registry) {
  using namespace norm;
  registry.add(
      normalization("layer_norm")
          .doc("every row shifted and scaled to mean 0 and variance 1, then by Scale and Bias")
          .intermediate("Mean", "the dims before begin_norm_axis")
          .intermediate("Variance", "the dims before begin_norm_axis")
          .attr("begin_norm_axis", 1, "first dim of a row; the dims before it count rows")
          .range(1)
          .infer(infer_layer_norm)
          .grad(grad("layer_norm_grad", {"X", "Scale", "Bias", "Mean", "Variance"})));
  registry.add(normalization("group_norm")
                   .doc("every group of channels of an image normalized, then scaled by channel")
                   .intermediate("Mean", "[batch, groups]")
                   .intermediate("Variance", "[batch, groups]")
                   .attr("groups", -1, "number of groups; required")
                   .attr("data_layout", "NCHW", "order of the image dims")
                   .one_of({"NCHW", "NHWC", "NCDHW", "NDHWC", "AnyLayout"})
                   .infer(infer_group_norm)
                   .grad(grad("group_norm_grad", {"X", "Y", "Scale", "Bias", "Mean", "Variance"})));
  registry.add(
      normalization("instance_norm")
          .doc("every channel of an image normalized, then scaled by channel")
          .intermediate("SavedMean", "[batch * channels]")
          .intermediate("SavedVariance", "[batch * channels], 1 / sqrt(variance + epsilon)")
          .infer(infer_instance_norm)
          .grad(without_offsets(
              grad("instance_norm_grad", {"X", "Scale", "SavedMean", "SavedVariance"}))));
}

}  // namespace millrace::ops
