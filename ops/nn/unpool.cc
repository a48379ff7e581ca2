#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/nn/window.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace unpool {
namespace {

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 4));
  MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "X", "Indices"));
  VarMeta out = ctx.input("X");
  if (!out.has_shape) {
    ctx.set_output("Out", shapeless_meta(out.dtype));
    return Ok();
  }
  const bool last = channels_last(ctx, "data_format");
  const auto kernel = ctx.attr<std::vector<int64_t>>("ksize");
  const auto wanted = ctx.attr<std::vector<int64_t>>("output_size");
  MILLRACE_RETURN_IF_ERROR(check_length(ctx, "ksize", kernel.size(), 2));
  MILLRACE_ASSIGN_OR_RETURN(const Window window, read_window(ctx, kernel, spatial_dims(out, last)));
  for (size_t i = 0; i < 2; ++i) {
    int64_t& dim = out.dims[first_spatial(last) + i];
    // Programs of fluid 1.x have no output_size.
    if (i < wanted.size() && wanted[i] > 0) {
      dim = wanted[i];
    } else if (window_is_sane(window, i, dim)) {
      dim = (dim - 1) * window.strides[i] - window.before[i] - window.after[i] + kernel[i];
    } else {
      dim = -1;
    }
  }
  ctx.set_output("Out", without_offsets(std::move(out)));
  return Ok();
}

}  // namespace
}  // namespace unpool

void add_nn_unpool(OpRegistry& registry) {
  registry.add(
      OpDef("unpool")
          .doc("puts pooled values back at the positions of their maxima, 0 elsewhere")
          .input("X", "rank 4; the values")
          .input("Indices", "shape of X; index of each value in the flattened image")
          .output("Out", "images with larger spatial dims")
          .required_attr<std::vector<int32_t>>("ksize", "window of the pooling")
          .range(1)
          .attr("strides", std::vector<int32_t>{1, 1}, "stride of the window")
          .range(1)
          .attr("paddings", std::vector<int32_t>{0, 0}, "of the pooling")
          .range(0)
          .attr("unpooling_type", "max", "the pooling to undo")
          .one_of({"max"})
          .attr("output_size", std::vector<int32_t>{0, 0}, "spatial dims; 0: from the window")
          .attr("data_format", "NCHW")
          .one_of({"NCHW", "NHWC"})
          .infer(unpool::infer)
          .grad({.type = "unpool_grad",
                 .inputs = {"X", "Indices", "Out", "Out@GRAD"},
                 .outputs = {"X@GRAD"}}));
}

}  // namespace millrace::ops
