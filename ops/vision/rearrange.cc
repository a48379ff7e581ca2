#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/nn/window.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

// Multiplies or divides a dim of X; an unknown dim stays unknown.
Status scale_dim(const InferContext& ctx, const VarMeta& x, size_t at, int64_t times, int64_t by,
                 llvm::StringRef attr, Dims& dims) {
  MILLRACE_RETURN_IF_ERROR(check_positive(ctx, attr, by));
  if (x.dims[at] < 0) return Ok();
  if (x.dims[at] % by != 0) {
    return ctx.error("dim {} of X {} must be a multiple of {}, from attribute '{}'", at,
                     dims_text(x.dims), by, std::string_view(attr.data(), attr.size()));
  }
  dims[at] = dims_product({x.dims[at] / by, times});
  return Ok();
}

// True if the shape of X is known; otherwise Out becomes an image of unknown size. Errors: the rank
// of X is not 4.
StatusOr<bool> known_image(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 4));
  const VarMeta x = ctx.input("X");
  if (!x.has_shape) ctx.set_output("Out", x.dtype, {-1, -1, -1, -1});
  return x.has_shape;
}

Status infer_pixel_shuffle(InferContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(const bool known, known_image(ctx));
  if (!known) return Ok();
  const VarMeta x = ctx.input("X");
  const int64_t factor = ctx.attr<int32_t>("upscale_factor");
  const bool last = channels_last(ctx, "data_format");
  const size_t first = first_spatial(last);
  Dims dims = x.dims;
  MILLRACE_RETURN_IF_ERROR(
      scale_dim(ctx, x, channel_dim(x, last), 1, factor * factor, "upscale_factor", dims));
  for (size_t i = first; i < first + 2; ++i)
    MILLRACE_RETURN_IF_ERROR(scale_dim(ctx, x, i, factor, 1, "upscale_factor", dims));
  ctx.set_output("Out", x.dtype, dims);
  return Ok();
}

// The gradient reverses the op: it moves channels back to pixels.
Status infer_pixel_shuffle_grad(InferContext& ctx) {
  VarMeta grad = ctx.input("Out@GRAD");
  if (!grad.has_shape || grad.rank() != 4) return Ok();
  const int64_t factor = ctx.attr<int32_t>("upscale_factor");
  const bool last = channels_last(ctx, "data_format");
  int64_t& channels = grad.dims[channel_dim(grad, last)];
  channels = dims_product({channels, factor, factor});
  for (size_t i = first_spatial(last); i < first_spatial(last) + 2; ++i) {
    if (grad.dims[i] >= 0) grad.dims[i] /= std::max<int64_t>(factor, 1);
  }
  ctx.set_output("X@GRAD", std::move(grad));
  return Ok();
}

Status infer_shuffle_channel(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 4));
  const VarMeta& x = ctx.input("X");
  const auto group = ctx.attr<int64_t>("group");
  MILLRACE_RETURN_IF_ERROR(check_positive(ctx, "group", group));
  if (x.has_shape && x.dims[1] >= 0 && x.dims[1] % group != 0) {
    return ctx.error("attribute 'group' ({}) does not divide the channels of X {}", group,
                     dims_text(x.dims));
  }
  ctx.set_output("Out", without_offsets(x));
  return Ok();
}

Status infer_space_to_depth(InferContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(const bool known, known_image(ctx));
  if (!known) return Ok();
  const VarMeta x = ctx.input("X");
  const int64_t block = ctx.attr<int32_t>("blocksize");
  if (x.dims[1] >= 0 && block > 0 && x.dims[1] % (block * block) != 0) {
    return ctx.error(
        "the square of attribute 'blocksize' ({}) does not divide the channels of X {}", block,
        dims_text(x.dims));
  }
  Dims dims = x.dims;
  MILLRACE_RETURN_IF_ERROR(scale_dim(ctx, x, 1, block * block, 1, "blocksize", dims));
  MILLRACE_RETURN_IF_ERROR(scale_dim(ctx, x, 2, 1, block, "blocksize", dims));
  MILLRACE_RETURN_IF_ERROR(scale_dim(ctx, x, 3, 1, block, "blocksize", dims));
  ctx.set_output("Out", x.dtype, dims);
  return Ok();
}

Status infer_temporal_shift(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 4));
  const VarMeta& x = ctx.input("X");
  const auto segments = ctx.attr<int64_t>("seg_num");
  MILLRACE_RETURN_IF_ERROR(check_positive(ctx, "seg_num", segments));
  if (x.has_shape && x.dims[0] >= 0 && x.dims[0] % segments != 0) {
    return ctx.error("attribute 'seg_num' ({}) does not divide the batch of X {}", segments,
                     dims_text(x.dims));
  }
  return infer_unary(ctx);
}

GradSpec from_out(llvm::StringRef type) {
  GradSpec spec;
  spec.type = type;
  spec.inputs = {"Out@GRAD"};
  spec.outputs = {"X@GRAD"};
  spec.shape_like = {{"X@GRAD", "Out@GRAD"}};
  return spec;
}

}  // namespace

/// pixel_shuffle, shuffle_channel, space_to_depth, temporal_shift
void add_vision_rearrange(OpRegistry& registry) {
  registry.add(OpDef("pixel_shuffle")
                   .doc("an enlarged image, with pixels taken from the channels")
                   .input("X", "rank 4")
                   .output("Out", "fewer channels, larger height and width")
                   .attr("upscale_factor", 1, "height of Out / height of X")
                   .range(1)
                   .attr("data_format", "NCHW", "order of the image dims")
                   .one_of({"NCHW", "NHWC"})
                   .infer(infer_pixel_shuffle)
                   .grad({.type = "pixel_shuffle_grad",
                          .inputs = {"Out@GRAD"},
                          .outputs = {"X@GRAD"},
                          .infer = infer_pixel_shuffle_grad}));
  registry.add(OpDef("shuffle_channel")
                   .doc("channels [group, rest] in the order [rest, group]")
                   .input("X", "[batch, channels, height, width]")
                   .output("Out", "shape, dtype and LoD of X")
                   .attr("group", 1, "number of groups")
                   .range(1)
                   .infer(infer_shuffle_channel)
                   .grad(from_out("shuffle_channel_grad")));
  registry.add(
      OpDef("space_to_depth")
          .doc("an image with smaller height and width and more channels, in the order of "
               "Darknet's reorg layer")
          .input("X", "[batch, channels, height, width]")
          .output("Out", "more channels, smaller height and width")
          .required_attr<int64_t>("blocksize", "height of X / height of Out")
          .range(1)
          .infer(infer_space_to_depth)
          .grad(
              {.type = "space_to_depth_grad", .inputs = {"X", "Out@GRAD"}, .outputs = {"X@GRAD"}}));
  registry.add(OpDef("temporal_shift")
                   .doc("some channels of a video moved one image ahead, some one back")
                   .input("X", "[videos * seg_num, channels, height, width]")
                   .output("Out", "shape, dtype and LoD of X")
                   .required_attr<int32_t>("seg_num", "images of a video")
                   .range(1)
                   .attr("shift_ratio", 0.25F, "part of the channels moved each way")
                   .range(0, 0.5)
                   .attr("data_format", "NCHW", "order of the image dims")
                   .one_of({"NCHW", "NHWC"})
                   .infer(infer_temporal_shift)
                   .grad(from_out("temporal_shift_grad")));
}

}  // namespace millrace::ops
