#include <algorithm>

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace spp {
namespace {

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 4));
  const VarMeta x = ctx.input("X");
  // Level l has 4^l windows: (4^height - 1) / 3 in all.
  const auto height = std::clamp<int64_t>(ctx.attr<int64_t>("pyramid_height"), 0, 16);
  const int64_t windows = ((int64_t{1} << (2 * height)) - 1) / 3;
  const int64_t channels = x.has_shape ? x.dims[1] : -1;
  const int64_t width = dims_product({channels, windows});
  ctx.set_output("Out", x.dtype, {x.has_shape ? x.dims[0] : -1, width});
  return Ok();
}

}  // namespace
}  // namespace spp

void add_nn_spp(OpRegistry& registry) {
  registry.add(OpDef("spp")
                   .doc("poolings of an image into 1, 2x2, 4x4, ... windows, concatenated")
                   .input("X", "[batch, channels, height, width]")
                   .output("Out", "[batch, channels * (1 + 4 + 16 + ...)]")
                   .required_attr<int32_t>("pyramid_height", "number of levels")
                   .range(1, 16)
                   .required_attr<std::string>("pooling_type", "how each window is reduced")
                   .one_of({"max", "avg"})
                   .infer(spp::infer)
                   .grad({.type = "spp_grad",
                          .inputs = {"X", "Out", "Out@GRAD"},
                          .outputs = {"X@GRAD"},
                          .infer = infer_grad_without_offsets}));
}

}  // namespace millrace::ops
