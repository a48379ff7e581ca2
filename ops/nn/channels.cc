#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/nn/window.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

Status infer_affine_channel(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (x.has_shape) {
    MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 64));
    const int64_t channels = x.dims[channel_dim(x, channels_last(ctx, "data_layout"))];
    if (channels >= 0) {
      MILLRACE_RETURN_IF_ERROR(check_elements(ctx, "Scale", channels));
      MILLRACE_RETURN_IF_ERROR(check_elements(ctx, "Bias", channels));
    }
  }
  return infer_unary(ctx);
}

Status infer_lrn(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 4));
  const auto n = ctx.attr<int64_t>("n");
  if (n % 2 == 0) return ctx.error("attribute 'n' must be odd, found {}", n);
  const VarMeta x = ctx.input("X");
  ctx.set_output("Out", x);
  VarMeta mid = x;
  mid.lod_level = 0;
  mid.lod = {};
  ctx.set_output("MidOut", std::move(mid));
  return Ok();
}

Status infer_maxout(InferContext& ctx) {
  VarMeta out = ctx.input("X");
  if (out.has_shape) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t axis,
                              checked_axis(ctx, "axis", ctx.attr<int64_t>("axis"), out.rank()));
    MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 4));
    const auto groups = ctx.attr<int64_t>("groups");
    MILLRACE_RETURN_IF_ERROR(check_positive(ctx, "groups", groups));
    int64_t& channels = out.dims[static_cast<size_t>(axis)];
    if (channels >= 0 && channels % groups != 0) {
      return ctx.error("attribute 'groups' ({}) does not divide dim {} of X {}", groups, axis,
                       dims_text(out.dims));
    }
    if (channels >= 0) channels /= groups;
  }
  out.lod_level = 0;
  out.lod = {};
  ctx.set_output("Out", std::move(out));
  return Ok();
}

}  // namespace

/// affine_channel, lrn, maxout
void add_nn_channels(OpRegistry& registry) {
  registry.add(OpDef("affine_channel")
                   .doc("Out = X * Scale + Bias, one factor and summand for each channel")
                   .input("X", "images")
                   .input("Scale", "[channels]")
                   .input("Bias", "[channels]")
                   .output("Out", "shape, dtype and LoD of X")
                   .attr("data_layout", "AnyLayout", "order of the image dims")
                   .one_of({"NCHW", "NHWC", "AnyLayout"})
                   .infer(infer_affine_channel)
                   .grad({.type = "affine_channel_grad",
                          .inputs = {"X", "Scale", "Out@GRAD"},
                          .outputs = {"X@GRAD", "Scale@GRAD", "Bias@GRAD"},
                          .shape_like = {{"Bias@GRAD", "Scale"}},
                          .infer = infer_grad_without_offsets})
                   .inplace("X", "Out"));
  registry.add(OpDef("lrn")
                   .doc("X divided by (k + alpha * sum of the squares of n channels) ^ beta")
                   .input("X", "rank 4")
                   .output("Out", "shape and dtype of X")
                   .output("MidOut", "shape of X; the sum before the power", Arity::kOptional)
                   .attr("n", 5, "channels in the sum; odd")
                   .range(1)
                   .attr("k", 2.0F)
                   .attr("alpha", 1e-4F)
                   .attr("beta", 0.75F)
                   .attr("data_format", "AnyLayout", "order of the image dims")
                   .one_of({"NCHW", "NHWC", "AnyLayout"})
                   .infer(infer_lrn)
                   .grad({.type = "lrn_grad",
                          .inputs = {"X", "Out", "MidOut", "Out@GRAD"},
                          .outputs = {"X@GRAD"},
                          .infer = infer_grad_without_offsets}));
  registry.add(
      OpDef("maxout")
          .doc("the largest of each groups successive channels")
          .input("X", "rank 4")
          .output("Out", "X with that many times fewer channels")
          .required_attr<int32_t>("groups", "channels in a group")
          .range(1)
          .attr("axis", 1, "the channel dim")
          .infer(infer_maxout)
          .grad(
              {.type = "maxout_grad", .inputs = {"X", "Out", "Out@GRAD"}, .outputs = {"X@GRAD"}}));
}

}  // namespace millrace::ops
