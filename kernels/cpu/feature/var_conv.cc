#include <algorithm>
#include <memory>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/sequence/sequence.h"
#include "kernels/cpu/workspace.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// var_conv_2d: a convolution of images of different sizes. The windows of an image are copied into
// a matrix with one column per output position; one matrix product computes the result.
namespace millrace::kernels {
namespace var_conv {
namespace {

struct VarConv {
  int64_t inputs;
  int64_t outputs;
  int64_t kernel_height;
  int64_t kernel_width;
  int64_t row_step;
  int64_t column_step;

  [[nodiscard]] int64_t taps() const { return inputs * kernel_height * kernel_width; }
};

VarConv var_conv_of(const KernelSetup& op) {
  return {op.attr<int32_t>("InputChannel"), op.attr<int32_t>("OutputChannel"),
          op.attr<int32_t>("KernelH"),      op.attr<int32_t>("KernelW"),
          op.attr<int32_t>("StrideH"),      op.attr<int32_t>("StrideW")};
}

struct SizedImage {
  int64_t height;
  int64_t width;
  int64_t tops;  // output positions
  int64_t lefts;

  [[nodiscard]] int64_t places() const { return tops * lefts; }
};

struct VarConvSlots {
  ArgIndex x, row, column, w;
};

// The images of X, checked against the heights and widths.
StatusOr<std::vector<SizedImage>> sized_images(const KernelContext& ctx, const VarConv& conv,
                                               const VarConvSlots& slots) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, slots.x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const row, needed(ctx, slots.row, "ROW"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const column, needed(ctx, slots.column, "COLUMN"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const w, needed(ctx, slots.w, "W"));
  MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> ends, sequences_of(*x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> heights, sequences_of(*row, "ROW"));
  MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> widths, sequences_of(*column, "COLUMN"));
  if (w->numel() != conv.outputs * conv.taps() || w->dtype() != x->dtype() ||
      x->numel() != x->dim(0))
    return ctx.error("W must have {} x {} elements of the type of X {}, found {}", conv.outputs,
                     conv.taps(), describe(*x), describe(*w));
  if (heights.size() != ends.size() || widths.size() != ends.size())
    return ctx.error("X, ROW and COLUMN have {}, {} and {} sequences, expected equal numbers",
                     ends.size() - 1, heights.size() - 1, widths.size() - 1);
  std::vector<SizedImage> images;
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    SizedImage image{heights[i + 1] - heights[i], widths[i + 1] - widths[i], 0, 0};
    if (ends[i + 1] - ends[i] != conv.inputs * image.height * image.width)
      return ctx.error("image {} of X has {} elements, expected {} x {} x {}", i,
                       ends[i + 1] - ends[i], conv.inputs, image.height, image.width);
    if (image.height > 0) image.tops = (image.height - 1) / conv.row_step + 1;
    if (image.width > 0) image.lefts = (image.width - 1) / conv.column_step + 1;
    if (image.tops == 0 || image.lefts == 0) image.tops = image.lefts = 0;
    images.push_back(image);
  }
  return images;
}

// Calls body(position in the matrix of windows, position in the image or -1). A window starts half
// its size above and to the left of its output position.
template <typename Body>
void each_tap(const VarConv& conv, const SizedImage& image, Body&& body) {
  int64_t at = 0;
  for (int64_t channel = 0; channel < conv.inputs; ++channel) {
    for (int64_t dy = 0; dy < conv.kernel_height; ++dy) {
      for (int64_t dx = 0; dx < conv.kernel_width; ++dx) {
        for (int64_t top = 0; top < image.tops; ++top) {
          for (int64_t left = 0; left < image.lefts; ++left, ++at) {
            const int64_t y = top * conv.row_step + dy - conv.kernel_height / 2;
            const int64_t x = left * conv.column_step + dx - conv.kernel_width / 2;
            const bool inside = y >= 0 && y < image.height && x >= 0 && x < image.width;
            body(at, inside ? (channel * image.height + y) * image.width + x : int64_t{-1});
          }
        }
      }
    }
  }
}

int64_t all_places(const std::vector<SizedImage>& images) {
  int64_t sum = 0;
  for (const SizedImage& image : images) sum += image.places();
  return sum;
}

template <typename T>
void write_taps(const VarConv& conv, const SizedImage& image, const T* x, T* windows) {
  each_tap(conv, image,
           [&](int64_t at, int64_t source) { windows[at] = source < 0 ? T(0) : x[source]; });
}

struct VarConvState {
  Workspace work;
  Gemm gemm;
};

template <typename T>
Status run(const KernelContext& ctx, const VarConv& conv, const std::vector<SizedImage>& images,
           const T* x, const T* w, Tensor* kept, T* out, VarConvState& state) {
  MILLRACE_ASSIGN_OR_RETURN(
      T * windows, state.work.output_or_take<T>(kept, 0, conv.taps() * all_places(images)));
  for (const SizedImage& image : images) {
    write_taps(conv, image, x, windows);
    MILLRACE_RETURN_IF_ERROR(state.gemm(
        ctx.device(), {.rows = conv.outputs, .columns = image.places(), .inner = conv.taps()}, w,
        static_cast<const T*>(windows), out));
    x += conv.inputs * image.height * image.width;
    windows += conv.taps() * image.places();
    out += conv.outputs * image.places();
  }
  return Ok();
}

StatusOr<Kernel> var_conv_2d(const KernelSetup& op) {
  const VarConvSlots slots{op.input("X"), op.input("ROW"), op.input("COLUMN"), op.input("W")};
  const ArgIndex out = op.output("Out");
  const ArgIndex kept = op.output("Col");
  const VarConv conv = var_conv_of(op);
  auto state = std::make_shared<VarConvState>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<SizedImage> images, sized_images(ctx, conv, slots));
    const Tensor& x = ctx.in(slots.x);
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      return run(ctx, conv, images, x.data<T>(), ctx.in(slots.w).data<T>(), ctx.find_out(kept),
                 ctx.out(out).data<T>(), *state);
    });
  });
}

template <typename T>
Status run_var_conv_grad(const KernelContext& ctx, const VarConv& conv,
                         const std::vector<SizedImage>& images, const T* x, const T* w,
                         const T* dout, T* dx, T* dw, VarConvState& state) {
  if (dw != nullptr) std::fill_n(dw, conv.outputs * conv.taps(), T(0));
  for (const SizedImage& image : images) {
    const int64_t places = image.places();
    MILLRACE_ASSIGN_OR_RETURN(T* const windows, state.work.take<T>(0, conv.taps() * places));
    if (dw != nullptr && places > 0) {
      write_taps(conv, image, x, windows);
      MILLRACE_RETURN_IF_ERROR(state.gemm(ctx.device(),
                                          {.rows = conv.outputs,
                                           .columns = conv.taps(),
                                           .inner = places,
                                           .b_transposed = true,
                                           .accumulate = true},
                                          dout, static_cast<const T*>(windows), dw));
    }
    if (dx != nullptr) {
      const int64_t count = conv.inputs * image.height * image.width;
      std::fill_n(dx, count, T(0));
      MILLRACE_RETURN_IF_ERROR(state.gemm(
          ctx.device(),
          {.rows = conv.taps(), .columns = places, .inner = conv.outputs, .a_transposed = true}, w,
          dout, windows));
      each_tap(conv, image, [&](int64_t at, int64_t source) {
        if (source >= 0) dx[source] += windows[at];
      });
      dx += count;
    }
    x += conv.inputs * image.height * image.width;
    dout += conv.outputs * places;
  }
  return Ok();
}

StatusOr<Kernel> var_conv_2d_grad(const KernelSetup& op) {
  const VarConvSlots slots{op.input("X"), op.input("ROW"), op.input("COLUMN"), op.input("W")};
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  const ArgIndex dw = op.output("W@GRAD");
  const VarConv conv = var_conv_of(op);
  auto state = std::make_shared<VarConvState>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<SizedImage> images, sized_images(ctx, conv, slots));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, dout, "Out@GRAD"));
    const Tensor& x = ctx.in(slots.x);
    const Tensor& w = ctx.in(slots.w);
    if (d->numel() != conv.outputs * all_places(images) || d->dtype() != x.dtype())
      return ctx.error("Out@GRAD must have {} elements, found {}",
                       conv.outputs * all_places(images), describe(*d));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_x, result_like(ctx, dx, x));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_w, result_like(ctx, dw, w));
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      return run_var_conv_grad(ctx, conv, images, x.data<T>(), w.data<T>(), d->data<T>(),
                               to_x == nullptr ? nullptr : to_x->data<T>(),
                               to_w == nullptr ? nullptr : to_w->data<T>(), *state);
    });
  });
}

}  // namespace
}  // namespace var_conv

void add_feature_var_conv(KernelRegistry& registry) {
  using namespace var_conv;
  registry.add("var_conv_2d", var_conv_2d);
  registry.add("var_conv_2d_grad", var_conv_2d_grad);
}

}  // namespace millrace::kernels
