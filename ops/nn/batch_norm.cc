#include "ops/grad.h"
#include "ops/grad_rules.h"
#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/nn/window.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace batch_norm_ops {
namespace {

// Scale, Bias, Mean and Variance have one element for each channel.
Status check_channels(const InferContext& ctx, int64_t channels) {
  for (const llvm::StringRef slot : {"Scale", "Bias", "Mean", "Variance"}) {
    const VarMeta& meta = ctx.input(slot);
    if (!meta.has_shape || channels < 0) continue;
    const int64_t found = dims_product(meta.dims);
    if (dims_agree(found, channels)) continue;
    return ctx.error("{} must have one element for each of the {} channels of X, found {}",
                     std::string_view(slot.data(), slot.size()), channels, dims_text(meta.dims));
  }
  return Ok();
}

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 5));
  const VarMeta x = ctx.input("X");
  const bool last = channels_last(ctx, "data_layout");
  int64_t channels = x.has_shape ? x.dims[channel_dim(x, last)] : -1;
  MILLRACE_RETURN_IF_ERROR(check_channels(ctx, channels));
  // Statistics of 16 bit images are kept in 32 bits, the type of Mean.
  const VarMeta mean = ctx.input("Mean");
  if (channels < 0 && mean.has_shape) channels = dims_product(mean.dims);
  const DType dtype = ctx.has_input("Mean") ? mean.dtype : x.dtype;
  ctx.set_output("Y", x);
  const VarMeta statistics = tensor_meta(dtype, {channels});
  ctx.set_output("MeanOut", with_offsets_of(statistics, ctx.input("Mean")));
  ctx.set_output("VarianceOut", with_offsets_of(statistics, ctx.input("Variance")));
  ctx.set_output("SavedMean", statistics);
  ctx.set_output("SavedVariance", statistics);
  if (ctx.has_output("ReserveSpace")) ctx.set_output("ReserveSpace", x.dtype, {-1});
  return Ok();
}

Status infer_grad(InferContext& ctx) {
  // inplace_abn_grad has Y instead of X, with the same shape.
  for (const auto& [output, input] : {std::pair{"X@GRAD", ctx.has_input("X") ? "X" : "Y@GRAD"},
                                      {"Scale@GRAD", "Scale"},
                                      {"Bias@GRAD", ctx.has_input("Bias") ? "Bias" : "Scale"}})
    ctx.set_output(output, without_offsets(ctx.input(input)));
  return Ok();
}

// relu of the sum of a normalized image and another image.
Status infer_fused(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(infer(ctx));
  const VarMeta& x = ctx.input("X");
  const VarMeta& z = ctx.input("Z");
  if (ctx.attr<bool>("z_first")) ctx.set_output("Y", with_offsets_of(x, z));
  bool alike = !dims_known(x) || !dims_known(z) || x.rank() == z.rank();
  for (size_t i = 0; alike && dims_known(x) && dims_known(z) && i < x.rank(); ++i)
    alike = dims_agree(x.dims[i], z.dims[i]);
  if (alike) return Ok();
  return ctx.error("X and Z must have the same shape, found {} and {}", dims_text(x.dims),
                   dims_text(z.dims));
}

Status infer_fused_grad(InferContext& ctx) {
  ctx.set_output("Z@GRAD", without_offsets(ctx.input("X")));
  return infer_grad(ctx);
}

// About eight operations an element: two sums, normalization, scale and shift.
double flops(const InferContext& ctx) {
  return 8 * elementwise_flops(ctx);
}

// The gradient op reads the statistics of the batch, or the running ones where those were used.
StatusOr<std::vector<GradOp>> make_grad(const GradContext& ctx, llvm::StringRef type,
                                        llvm::StringRef data_slot, bool from_output) {
  const Op& forward = ctx.forward();
  GradOp op(type);
  op.input(data_slot, from_output ? ctx.output(data_slot) : ctx.input(data_slot));
  op.input("Y@GRAD", ctx.output_grad("Y"));
  const auto add_known = [&](llvm::StringRef slot, std::vector<std::string> names) {
    if (!names.empty()) op.input(slot, std::move(names));
  };
  add_known("Scale", ctx.input("Scale"));
  add_known("Bias", ctx.input("Bias"));
  for (const llvm::StringRef slot :
       {"SavedMean", "SavedVariance", "ReserveSpace", "MeanOut", "VarianceOut"})
    add_known(slot, ctx.output(slot));
  if (get_attr_or(forward, "use_global_stats", false) || get_attr_or(forward, "is_test", false)) {
    op.input("Mean", ctx.output("MeanOut")).input("Variance", ctx.output("VarianceOut"));
  }
  if (!add_wanted_grads(ctx, {"X", "Scale", "Bias"}, op)) return std::vector<GradOp>{};
  copy_attrs(ctx, op);
  return one_grad_op(std::move(op));
}

StatusOr<std::vector<GradOp>> grad(const GradContext& ctx) {
  return make_grad(ctx, "batch_norm_grad", "X", /*from_output=*/false);
}

StatusOr<std::vector<GradOp>> sync_grad(const GradContext& ctx) {
  return make_grad(ctx, "sync_batch_norm_grad", "X", /*from_output=*/false);
}

// Computed in place: X is overwritten, so the gradient op inverts the activation from Y.
StatusOr<std::vector<GradOp>> inplace_grad(const GradContext& ctx) {
  return make_grad(ctx, "inplace_abn_grad", "Y", /*from_output=*/true);
}

void add_attrs(OpDef& def) {
  def.attr("momentum", 0.9F, "weight of the old running statistics")
      .attr("epsilon", 1e-5F, "added to the variance")
      .range(0)
      .attr("data_layout", "NCHW", "order of the image dims")
      .one_of({"NCHW", "NHWC", "NCDHW", "NDHWC", "AnyLayout"})
      .attr("is_test", false, "use the running statistics")
      .attr("use_global_stats", false, "use the running statistics in training too")
      .attr("trainable_statistics", false, "use those of the batch although is_test is set")
      .attr("fuse_with_relu", false, "apply relu to Y; of fused programs");
}

void add_activation_attrs(OpDef& def) {
  def.attr("activation", "identity", "activation after the normalization")
      .one_of({"identity", "leakyrelu", "leaky_relu", "elu"})
      .attr("alpha", 0.1F, "slope or scale of the activation")
      .attr("use_sync_bn", false, "statistics over all devices");
}

OpDef forward(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "images or rows, rank 2 to 5")
      .input("Scale", "[channels], factor", Arity::kOptional)
      .input("Bias", "[channels], summand", Arity::kOptional)
      .input("Mean", "[channels], running mean")
      .input("Variance", "[channels], running variance")
      .input("MomentumTensor", "one element; replaces the attribute", Arity::kOptional)
      .output("Y", "shape, dtype and LoD of X")
      .output("MeanOut", "the var of Mean, updated")
      .output("VarianceOut", "the var of Variance, updated")
      .intermediate("SavedMean", "[channels], mean of the batch")
      .intermediate("SavedVariance", "[channels], 1 / sqrt(variance of the batch + epsilon)")
      .intermediate("ReserveSpace", "work space of the original's GPU kernel")
      .infer(infer)
      .flops(flops)
      .inplace("Mean", "MeanOut")
      .inplace("Variance", "VarianceOut");
  add_attrs(def);
  return def;
}

OpDef backward(llvm::StringRef type) {
  OpDef def(type);
  def.doc("gradient of a batch normalization")
      .input("X", "input of the forward op", Arity::kOptional)
      .input("Y", "result of inplace_abn", Arity::kOptional)
      .input("Y@GRAD", "gradient of Y")
      .input("Scale", "[channels]", Arity::kOptional)
      .input("Bias", "[channels]", Arity::kOptional)
      .input("SavedMean", "mean of the batch", Arity::kOptional)
      .input("SavedVariance", "1 / sqrt(variance of the batch + epsilon)", Arity::kOptional)
      .input("ReserveSpace", "work space", Arity::kOptional)
      .input("MeanOut", "running mean", Arity::kOptional)
      .input("VarianceOut", "running variance", Arity::kOptional)
      .input("Mean", "running mean, where it was used", Arity::kOptional)
      .input("Variance", "running variance, where it was used", Arity::kOptional)
      .output("X@GRAD", "gradient of X", Arity::kOptional)
      .output("Scale@GRAD", "[channels]", Arity::kOptional)
      .output("Bias@GRAD", "[channels]", Arity::kOptional)
      .infer(infer_grad)
      .flops(flops);
  add_attrs(def);
  return def;
}

// A pass fuses a normalization, the sum with another image, and relu into this op.
OpDef fused_batch_norm() {
  OpDef def = forward("fused_batch_norm",
                      "max(batch_norm(X) + Z, 0); made by the rewrite fuse-norm for training");
  return def.input("Z", "image of the shape of X", Arity::kOptional)
      .attr("z_first", false, "Y has the LoD of Z, not of X")
      .infer(infer_fused)
      .inplace("Z", "Y");
}

OpDef fused_backward() {
  OpDef def = backward("fused_batch_norm_grad");
  return def.doc("gradient of fused_batch_norm; that of Y is the sum of two where there are two")
      .input("MoreY@GRAD", "second summand of the gradient of Y", Arity::kOptional)
      .output("Z@GRAD", "gradient of Z", Arity::kOptional)
      .infer(infer_fused_grad)
      .inplace("Y@GRAD", "Z@GRAD")
      .inplace("MoreY@GRAD", "X@GRAD")
      .inplace("Y@GRAD", "X@GRAD");
}

}  // namespace
}  // namespace batch_norm_ops

/// batch_norm, sync_batch_norm, inplace_abn and their gradient ops
void add_nn_batch_norm(OpRegistry& registry) {
  using namespace batch_norm_ops;
  registry.add(forward("batch_norm",
                       "every channel shifted and scaled to mean 0 and variance 1, "
                       "then by Scale and Bias")
                   .grad(grad));
  registry.add(backward("batch_norm_grad"));
  registry.add(fused_batch_norm());
  registry.add(fused_backward());
  registry.add(
      forward("sync_batch_norm", "batch_norm with the statistics of the batches of all devices")
          .grad(sync_grad));
  registry.add(backward("sync_batch_norm_grad"));
  OpDef abn = forward("inplace_abn", "batch_norm and an activation, in the memory of X");
  add_activation_attrs(abn);
  registry.add(abn.grad(inplace_grad).inplace("X", "Y"));
  OpDef abn_grad = backward("inplace_abn_grad");
  add_activation_attrs(abn_grad);
  registry.add(std::move(abn_grad));
}

}  // namespace millrace::ops
