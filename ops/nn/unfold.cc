#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/nn/window.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace unfold {
namespace {

// The paddings of both ops go (top, left, bottom, right); Window wants pairs.
void set_paddings(llvm::ArrayRef<int64_t> paddings, Window& window) {
  for (size_t i = 0; i < 2; ++i) {
    window.before.push_back(paddings[i]);
    window.after.push_back(paddings[paddings.size() == 4 ? 2 + i : i]);
  }
}

Status check_windows(const InferContext& ctx, const VarMeta& x, const Window& window,
                     llvm::ArrayRef<int64_t> places) {
  for (size_t i = 0; i < 2; ++i) {
    if (places[i] != 0) continue;
    return ctx.error("a window of size {} does not fit in dim {} of X {} padded by {} and {}",
                     window.kernel[i], 2 + i, dims_text(x.dims), window.before[i], window.after[i]);
  }
  return Ok();
}

StatusOr<Window> read(const InferContext& ctx, llvm::StringRef kernel_attr, bool dilated) {
  const auto kernel = ctx.attr<std::vector<int64_t>>(kernel_attr);
  const auto strides = ctx.attr<std::vector<int64_t>>("strides");
  const auto paddings = ctx.attr<std::vector<int64_t>>("paddings");
  MILLRACE_RETURN_IF_ERROR(check_length(ctx, kernel_attr, kernel.size(), 2));
  MILLRACE_RETURN_IF_ERROR(check_length(ctx, "strides", strides.size(), 2));
  MILLRACE_RETURN_IF_ERROR(check_length(ctx, "paddings", paddings.size(), 2, /*or_twice=*/true));
  Window window;
  window.kernel.assign(kernel.begin(), kernel.end());
  window.strides.assign(strides.begin(), strides.end());
  window.dilations.assign(2, 1);
  if (dilated) {
    const auto dilations = ctx.attr<std::vector<int64_t>>("dilations");
    MILLRACE_RETURN_IF_ERROR(check_length(ctx, "dilations", dilations.size(), 2));
    window.dilations.assign(dilations.begin(), dilations.end());
  }
  set_paddings(paddings, window);
  return window;
}

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 4));
  const VarMeta x = ctx.input("X");
  if (!x.has_shape) {
    ctx.set_output("Y", x.dtype, {-1, -1, -1});
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const Window window, read(ctx, "kernel_sizes", true));
  const Dims places = {window_places(window, 0, x.dims[2]), window_places(window, 1, x.dims[3])};
  MILLRACE_RETURN_IF_ERROR(check_windows(ctx, x, window, places));
  const int64_t column = dims_product({x.dims[1], window.kernel[0], window.kernel[1]});
  ctx.set_output("Y", x.dtype, {x.dims[0], column, dims_product({places[0], places[1]})});
  return Ok();
}

Status infer_im2sequence(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 4));
  const VarMeta x = ctx.input("X");
  Dims dims = {-1, -1};
  if (x.has_shape) {
    MILLRACE_ASSIGN_OR_RETURN(const Window window, read(ctx, "kernels", false));
    dims[1] = dims_product({x.dims[1], window.kernel[0], window.kernel[1]});
    if (!ctx.has_input("Y")) {
      const Dims places = {window_places(window, 0, x.dims[2]),
                           window_places(window, 1, x.dims[3])};
      MILLRACE_RETURN_IF_ERROR(check_windows(ctx, x, window, places));
      dims[0] = dims_product({x.dims[0], places[0], places[1]});
    }
  }
  ctx.set_output("Out", tensor_meta(x.dtype, dims, 1));
  return Ok();
}

}  // namespace
}  // namespace unfold

/// unfold, im2sequence
void add_nn_unfold(OpRegistry& registry) {
  using namespace unfold;
  registry.add(
      OpDef("unfold")
          .doc("the windows of an image as columns")
          .input("X", "[batch, channels, height, width]")
          .output("Y", "[batch, channels * window, positions]")
          .required_attr<std::vector<int32_t>>("kernel_sizes", "size of the window")
          .range(1)
          .required_attr<std::vector<int32_t>>("strides", "stride of the window")
          .range(1)
          .required_attr<std::vector<int32_t>>("paddings", "top, left, bottom, right")
          .range(0)
          .required_attr<std::vector<int32_t>>("dilations", "distance of the window's elements")
          .range(1)
          .infer(infer)
          .grad({.type = "unfold_grad", .inputs = {"X", "Y@GRAD"}, .outputs = {"X@GRAD"}}));
  registry.add(OpDef("im2sequence")
                   .doc("the windows of an image as rows of a sequence, one for each image")
                   .input("X", "[batch, channels, height, width]")
                   .input("Y", "[batch, 2], real height and width of each image", Arity::kOptional)
                   .output("Out", "[all positions, channels * window], one LoD level")
                   .required_attr<std::vector<int32_t>>("kernels", "size of the window")
                   .range(1)
                   .attr("strides", std::vector<int32_t>{1, 1}, "stride of the window")
                   .range(1)
                   .attr("paddings", std::vector<int32_t>{0, 0, 0, 0}, "top, left, bottom, right")
                   .range(0)
                   .attr("out_stride", std::vector<int32_t>{1, 1}, "scale of the sizes in Y")
                   .range(1)
                   .infer(infer_im2sequence)
                   .grad({.type = "im2sequence_grad",
                          .inputs = {"X", "Out@GRAD"},
                          .outputs = {"X@GRAD"},
                          .infer = infer_grad_without_offsets}));
}

}  // namespace millrace::ops
