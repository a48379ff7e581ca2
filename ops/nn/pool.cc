#include "ops/infer_helpers.h"
#include "ops/nn/window.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace pool {
namespace {

// Size of each spatial dim of Out.
StatusOr<Dims> pooled(const InferContext& ctx, llvm::ArrayRef<int64_t> input) {
  const auto kernel = ctx.attr<std::vector<int64_t>>("ksize");
  const size_t n = input.size();
  if (ctx.attr<bool>("global_pooling")) {
    if (!ctx.attr<bool>("adaptive")) return Dims(n, 1);
    // In the original, ksize becomes the size of the image, and adaptive makes it the size of Out.
    return Dims(input.begin(), input.end());
  }
  MILLRACE_RETURN_IF_ERROR(check_length(ctx, "ksize", kernel.size(), n));
  for (const int64_t size : kernel) {
    if (size < 1) return ctx.error("attribute 'ksize' must be at least 1, found {}", size);
  }
  if (ctx.attr<bool>("adaptive")) return Dims(kernel.begin(), kernel.end());
  MILLRACE_ASSIGN_OR_RETURN(const Window window, read_window(ctx, kernel, input));
  const bool round_up = ctx.def().find_attr("ceil_mode") != nullptr && ctx.attr<bool>("ceil_mode");
  Dims out;
  for (size_t i = 0; i < n; ++i) {
    out.push_back(window_places(window, i, input[i], round_up));
    if (out.back() == 0) {
      return ctx.error(
          "a window of attribute 'ksize' {} does not fit in spatial dim {} of X of size {} padded "
          "by {} and {}",
          kernel[i], i, input[i], window.before[i], window.after[i]);
    }
  }
  return out;
}

StatusOr<VarMeta> infer_out(const InferContext& ctx, size_t spatial, bool last) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", spatial + 2, spatial + 2));
  VarMeta out = ctx.input("X");
  if (!out.has_shape) return shapeless_meta(out.dtype);
  MILLRACE_ASSIGN_OR_RETURN(const Dims dims, pooled(ctx, spatial_dims(out, last)));
  std::copy(dims.begin(), dims.end(),
            out.dims.begin() + static_cast<std::ptrdiff_t>(first_spatial(last)));
  return out;
}

Status infer_pool2d(InferContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(VarMeta out, infer_out(ctx, 2, channels_last(ctx, "data_format")));
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_pool3d(InferContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(VarMeta out, infer_out(ctx, 3, channels_last(ctx, "data_format")));
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_with_index(InferContext& ctx, size_t spatial) {
  MILLRACE_ASSIGN_OR_RETURN(VarMeta out, infer_out(ctx, spatial, /*last=*/false));
  VarMeta mask = out;
  mask.dtype = DType::kInt32;
  mask.lod_level = 0;
  mask.lod = {};
  out.lod = {};
  ctx.set_output("Out", std::move(out));
  ctx.set_output("Mask", std::move(mask));
  return Ok();
}

Status infer_with_index2d(InferContext& ctx) {
  return infer_with_index(ctx, 2);
}

Status infer_with_index3d(InferContext& ctx) {
  return infer_with_index(ctx, 3);
}

// One operation for each element of each window.
double flops(const InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (ctx.attr<bool>("global_pooling") || ctx.attr<bool>("adaptive")) return element_count(x);
  double count = element_count(x);
  for (const int64_t size : ctx.attr<std::vector<int64_t>>("ksize"))
    count *= static_cast<double>(std::max<int64_t>(size, 1));
  for (const int64_t stride : ctx.attr<std::vector<int64_t>>("strides"))
    count /= static_cast<double>(std::max<int64_t>(stride, 1));
  return count;
}

OpDef family(llvm::StringRef type, llvm::StringRef doc, size_t spatial) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "images")
      .output("Out", "images with smaller spatial dims")
      .required_attr<std::vector<int32_t>>("ksize",
                                           "size of the window, of Out if adaptive; any if global")
      .range(-1)
      .attr("strides", std::vector<int32_t>(spatial, 1), "stride of the window")
      .range(1)
      .attr("paddings", std::vector<int32_t>(spatial, 0), "one entry or (before, after) a dim")
      .range(0)
      .attr("global_pooling", false, "the window is the whole image")
      .attr("adaptive", false, "ksize is the size of Out, and of the windows of maxima")
      .flops(flops);
  return def;
}

OpDef& add_pool_attrs(OpDef& def, size_t spatial, llvm::StringRef grad_type) {
  return def.required_attr<std::string>("pooling_type", "how each window is reduced")
      .one_of({"max", "avg"})
      .attr("ceil_mode", false, "use a last window that exceeds the image")
      .attr("exclusive", true, "averages ignore padding")
      .attr("data_format", spatial == 2 ? "NCHW" : "NCDHW", "order of the image dims")
      .one_of({"NCHW", "NHWC", "NCDHW", "NDHWC", "AnyLayout"})
      .attr("padding_algorithm", "EXPLICIT", "SAME and VALID replace paddings")
      .one_of({"EXPLICIT", "SAME", "VALID"})
      .grad({.type = grad_type, .inputs = {"X", "Out", "Out@GRAD"}, .outputs = {"X@GRAD"}});
}

}  // namespace
}  // namespace pool

/// pool2d, pool3d, max_pool2d_with_index, max_pool3d_with_index
void add_nn_pool(OpRegistry& registry) {
  using namespace pool;
  OpDef pool2d = family("pool2d", "maximum or average of each window of an image", 2);
  registry.add(add_pool_attrs(pool2d, 2, "pool2d_grad").infer(infer_pool2d));
  OpDef pool3d = family("pool3d", "maximum or average of each window of a volume", 3);
  registry.add(add_pool_attrs(pool3d, 3, "pool3d_grad").infer(infer_pool3d));
  registry.add(family("max_pool2d_with_index", "maximum of each window, and its position", 2)
                   .output("Mask", "int32; index of the maximum in the flattened image")
                   .infer(infer_with_index2d)
                   .grad({.type = "max_pool2d_with_index_grad",
                          .inputs = {"X", "Mask", "Out@GRAD"},
                          .outputs = {"X@GRAD"}}));
  registry.add(
      family("max_pool3d_with_index", "maximum of each window of a volume, and its position", 3)
          .output("Mask", "int32; index of the maximum in the flattened volume")
          .infer(infer_with_index3d)
          .grad({.type = "max_pool3d_with_index_grad",
                 .inputs = {"X", "Mask", "Out@GRAD"},
                 .outputs = {"X@GRAD"}}));
}

}  // namespace millrace::ops
