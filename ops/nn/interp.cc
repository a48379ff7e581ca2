#include "ops/infer_helpers.h"
#include "ops/nn/window.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace interp {
namespace {

// Attributes of the sizes, by spatial rank, in the order of the dims.
llvm::ArrayRef<const char*> size_attrs(size_t spatial) {
  static constexpr const char* kNames[] = {"out_d", "out_h", "out_w"};
  return llvm::ArrayRef<const char*>(kNames).take_back(spatial);
}

// Factor of spatial dim i; 0 if the sizes decide. One factor holds for all dims.
StatusOr<float> factor_of(const InferContext& ctx, size_t i, size_t spatial) {
  const auto scale = ctx.attr<std::vector<float>>("scale");
  if (scale.empty()) return 0.0F;
  if (scale.size() != 1 && scale.size() != spatial) {
    return ctx.error("attribute 'scale' must have 1 or {} entries, found {}", spatial,
                     scale.size());
  }
  return scale.size() == 1 ? scale[0] : scale[i];
}

StatusOr<int64_t> output_size(const InferContext& ctx, size_t i, size_t spatial, int64_t size) {
  const char* const name = size_attrs(spatial)[i];
  const auto own = ctx.attr<int64_t>(name);
  // If a list of tensors holds the sizes, the attributes hold the constants among them.
  if (ctx.has_input("SizeTensor")) return own > 0 ? own : -1;
  if (ctx.has_input("OutSize") || ctx.has_input("Scale")) return int64_t{-1};
  MILLRACE_ASSIGN_OR_RETURN(const float factor, factor_of(ctx, i, spatial));
  if (factor > 0) {
    return size < 0 ? int64_t{-1} : static_cast<int64_t>(static_cast<float>(size) * factor);
  }
  if (own <= 0) {
    return ctx.error("attribute '{}' must be positive where no scale is given, found {}", name,
                     own);
  }
  return own;
}

// Every layout that does not start with NC has the channels last, including AnyLayout, as in the
// original.
bool has_channels_last(const InferContext& ctx) {
  return ctx.attr<std::string>("data_layout").compare(0, 2, "NC") != 0;
}

// The attribute selects the method, whatever the name of the op.
Status check_method(const InferContext& ctx, size_t spatial) {
  static constexpr const char* kLinear[] = {"linear", "bilinear", "trilinear"};
  const auto method = ctx.attr<std::string>("interp_method");
  if (method == "nearest" || method == kLinear[spatial - 1]) return Ok();
  if (method == "bicubic" && spatial == 2) return Ok();
  return ctx.error("attribute 'interp_method' is {}, which is not a method for {} spatial dims",
                   method, spatial);
}

Status infer(InferContext& ctx, size_t spatial) {
  MILLRACE_RETURN_IF_ERROR(check_method(ctx, spatial));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", spatial + 2, spatial + 2));
  VarMeta out = ctx.input("X");
  if (!out.has_shape) {
    ctx.set_output("Out", shapeless_meta(out.dtype));
    return Ok();
  }
  const size_t first = first_spatial(has_channels_last(ctx));
  for (size_t i = 0; i < spatial; ++i) {
    MILLRACE_ASSIGN_OR_RETURN(out.dims[first + i],
                              output_size(ctx, i, spatial, out.dims[first + i]));
  }
  out.lod_level = 0;
  out.lod = {};
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_line(InferContext& ctx) {
  return infer(ctx, 1);
}
Status infer_image(InferContext& ctx) {
  return infer(ctx, 2);
}
Status infer_volume(InferContext& ctx) {
  return infer(ctx, 3);
}

OpDef family(llvm::StringRef type, llvm::StringRef grad_type, llvm::StringRef doc,
             const char* method) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "images; channels last unless data_layout starts with NC")
      .input("OutSize", "the sizes as one tensor", Arity::kOptional)
      .input("SizeTensor", "one element for each spatial dim", Arity::kAny)
      .input("Scale", "the factors as a tensor", Arity::kOptional)
      .output("Out", "images of other sizes")
      .attr("data_layout", "NCHW", "order of the image dims")
      .one_of({"NCHW", "NHWC", "NCDHW", "NDHWC", "NCW", "NWC", "NCL", "NLC", "AnyLayout"})
      .attr("out_d", 0, "depth of Out; read if no scale is given")
      .range(-1)
      .attr("out_h", 0, "height of Out; read if no scale is given")
      .range(-1)
      .attr("out_w", 0, "width of Out; read if no scale is given")
      .range(-1)
      .attr("interp_method", method, "how values between pixels are found")
      .one_of({"nearest", "linear", "bilinear", "trilinear", "bicubic"})
      .attr("align_corners", true, "the corner pixels of X and Out are the same points")
      .attr("align_mode", 1, "0: pixels are squares, 1: points; not with align_corners")
      .range(0, 1)
      .grad({.type = grad_type,
             .inputs = {"X", "OutSize", "SizeTensor", "Scale", "Out@GRAD"},
             .outputs = {"X@GRAD"}});
  return def;
}

}  // namespace
}  // namespace interp

/// linear, bilinear, trilinear, bicubic and nearest interpolation
void add_nn_interp(OpRegistry& registry) {
  using namespace interp;
  const auto add_old = [&](llvm::StringRef type, llvm::StringRef grad_type, llvm::StringRef doc,
                           const char* method, InferFn infer_fn) {
    registry.add(family(type, grad_type, doc, method)
                     .attr("scale", 0.0F, "size of Out / size of X; 0: not given")
                     .range(0)
                     .infer(infer_fn));
  };
  add_old("bilinear_interp", "bilinear_interp_grad",
          "image resized, values from the four nearest pixels", "bilinear", infer_image);
  add_old("bicubic_interp", "bicubic_interp_grad",
          "image resized, values from the sixteen nearest pixels", "bicubic", infer_image);
  add_old("linear_interp", "linear_interp_grad", "line resized, values from the two nearest points",
          "linear", infer_line);
  add_old("trilinear_interp", "trilinear_interp_grad",
          "volume resized, values from the eight nearest points", "trilinear", infer_volume);
  add_old("nearest_interp", "nearest_interp_grad", "image resized, values from the nearest pixel",
          "nearest", infer_image);
  const auto add = [&](llvm::StringRef type, llvm::StringRef grad_type, llvm::StringRef doc,
                       const char* method, InferFn infer_fn) {
    registry.add(family(type, grad_type, doc, method)
                     .attr("scale", std::vector<float>{},
                           "size of Out / size of X, one or one for each spatial dim")
                     .range(0)
                     .infer(infer_fn));
  };
  add("bicubic_interp_v2", "bicubic_interp_v2_grad",
      "image resized, values from the sixteen nearest pixels", "bicubic", infer_image);
  add("bilinear_interp_v2", "bilinear_interp_v2_grad",
      "image resized, values from the four nearest pixels", "bilinear", infer_image);
  add("linear_interp_v2", "linear_interp_v2_grad",
      "line resized, values from the two nearest points", "linear", infer_line);
  add("nearest_interp_v2", "nearest_interp_v2_grad", "image resized, values from the nearest pixel",
      "nearest", infer_image);
  add("trilinear_interp_v2", "trilinear_interp_v2_grad",
      "volume resized, values from the eight nearest points", "trilinear", infer_volume);
}

}  // namespace millrace::ops
