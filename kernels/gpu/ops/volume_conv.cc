#include <memory>
#include <string>

#include "kernels/cpu/nn/window.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/ops/channels_first.h"
#include "kernels/gpu/ops/conv_args.h"
#include "kernels/gpu/ops/kept_memory.h"
#include "kernels/registry.h"

// Convolutions of volumes, and transposed convolutions of images and volumes. Those of images are
// the gradients of a convolution, which the device has. Those of volumes are products of a filter
// and the matrix of windows, image by image.
namespace millrace::gpu {
namespace volume_conv {
namespace {

// x [batch, in_channels, size...], w [out_channels, in_channels / groups, kernel...],
// y [batch, out_channels, places...].
struct ConvShape {
  WindowMatrix windows;  // of x
  int64_t batch = 0;
  int64_t out_channels = 0;
  int64_t groups = 1;
  bool is_volume = false;

  [[nodiscard]] int64_t image() const { return windows.channels * windows.plane(); }
  [[nodiscard]] int64_t result() const { return out_channels * windows.places(); }
};

class Convolver {
 public:
  explicit Convolver(const KernelSetup& op, bool transposed)
      : window_(kernels::read_window_attrs(op)),
        groups_(op.attr<int64_t>("groups")),
        transposed_(transposed),
        device_(device_of(op)),
        columns_(memory_of(op), "windows of a convolution") {}

  // Errors: rejects shapes that do not fit.
  [[nodiscard]] StatusOr<ConvShape> shape(const Tensor& x, const Tensor& w, const Tensor& y) const {
    const auto misfit = [&] {
      return refuse("{}, {} and {}", describe(x), describe(w), describe(y));
    };
    const size_t n = x.rank() - 2;
    if ((x.rank() != 4 && x.rank() != 5) || w.rank() != x.rank() || y.rank() != x.rank() ||
        groups_ < 1 || w.dim(1) * groups_ != x.dim(1) || w.dim(0) % groups_ != 0 ||
        y.dim(1) != w.dim(0) || y.dim(0) != x.dim(0))
      return misfit();
    const auto window = kernels::window_over(window_, w.dims().drop_front(2),
                                             (transposed_ ? y : x).dims().drop_front(2));
    if (!window.ok()) return misfit();
    ConvShape c;
    c.batch = x.dim(0);
    c.out_channels = w.dim(0);
    c.groups = groups_;
    c.is_volume = n == 3;
    c.windows.channels = x.dim(1);
    for (size_t i = 0; i < n; ++i) {
      WindowSide& side = c.windows.sides[3 - n + i];
      side = {x.dims()[2 + i],    y.dims()[2 + i],      w.dims()[2 + i],
              window->strides[i], window->dilations[i], window->before[i]};
      if (side.places != ops::window_places(*window, i, side.size)) return misfit();
    }
    return c;
  }

  Status output(const ConvShape& c, const float* x, const float* w, float* y) {
    if (!c.is_volume) return device_.convolve(of_images(c, Convolution::What::kOutput, x, w, y));
    for (int64_t n = 0; n < c.batch; ++n) {
      MILLRACE_ASSIGN_OR_RETURN(const float* const columns, columns_of(c, x + n * c.image()));
      MatrixProduct p = by_groups(c);
      p.a = w;
      p.b = columns;
      p.c = y + n * c.result();
      p.rows = c.out_channels / c.groups;
      p.inner = c.windows.elements() / c.groups;
      p.columns = c.windows.places();
      MILLRACE_RETURN_IF_ERROR(multiply(p));
    }
    return Ok();
  }

  Status input_gradient(const ConvShape& c, float* dx, const float* w, const float* dy) {
    if (!c.is_volume)
      return device_.convolve(of_images(c, Convolution::What::kInputGradient, dx, w, dy));
    MILLRACE_ASSIGN_OR_RETURN(float* const columns,
                              columns_.get(c.windows.elements() * c.windows.places()));
    for (int64_t n = 0; n < c.batch; ++n) {
      MatrixProduct p = by_groups(c);
      p.a = w;
      p.transpose_a = true;
      p.b = dy + n * c.result();
      p.c = columns;
      p.rows = c.windows.elements() / c.groups;
      p.inner = c.out_channels / c.groups;
      p.columns = c.windows.places();
      MILLRACE_RETURN_IF_ERROR(multiply(p));
      MILLRACE_RETURN_IF_ERROR(
          each(device_, AddWindows{c.windows, columns, dx + n * c.image()}, c.image()));
    }
    return Ok();
  }

  Status filter_gradient(const ConvShape& c, const float* x, float* dw, const float* dy) {
    if (!c.is_volume)
      return device_.convolve(of_images(c, Convolution::What::kFilterGradient, x, dw, dy));
    for (int64_t n = 0; n < c.batch; ++n) {
      MILLRACE_ASSIGN_OR_RETURN(const float* const columns, columns_of(c, x + n * c.image()));
      MatrixProduct p = by_groups(c);
      p.a = dy + n * c.result();
      p.b = columns;
      p.transpose_b = true;
      p.c = dw;
      p.rows = c.out_channels / c.groups;
      p.inner = c.windows.places();
      p.columns = c.windows.elements() / c.groups;
      p.beta = n == 0 ? 0.0F : 1.0F;
      MILLRACE_RETURN_IF_ERROR(multiply(p));
    }
    return Ok();
  }

 private:
  static MatrixProduct by_groups(const ConvShape& c) {
    MatrixProduct p;
    p.batch = c.groups;
    return p;
  }
  // All operands are contiguous: one matrix of a group after another.
  Status multiply(MatrixProduct& p) {
    p.a_stride = p.rows * p.inner;
    p.b_stride = p.inner * p.columns;
    p.c_stride = p.rows * p.columns;
    return device_.multiply(p);
  }
  // The windows of an image.
  StatusOr<const float*> columns_of(const ConvShape& c, const float* image) {
    if (c.windows.is_image()) return image;
    const int64_t count = c.windows.elements() * c.windows.places();
    MILLRACE_ASSIGN_OR_RETURN(float* const columns, columns_.get(count));
    MILLRACE_RETURN_IF_ERROR(each(device_, CopyWindows{c.windows, image, columns}, count));
    return static_cast<const float*>(columns);
  }
  // A convolution of images; one of the three operands is the result.
  static Convolution of_images(const ConvShape& c, Convolution::What what, const float* x,
                               const float* w, const float* y) {
    Convolution of;
    of.what = what;
    of.input = const_cast<float*>(x);
    of.filter = const_cast<float*>(w);
    of.output = const_cast<float*>(y);
    of.batch = c.batch;
    of.in_channels = c.windows.channels;
    of.out_channels = c.out_channels;
    of.groups = c.groups;
    for (size_t i = 0; i < 2; ++i) {
      const WindowSide& side = c.windows.sides[i + 1];
      of.in[i] = side.size;
      of.out[i] = side.places;
      of.kernel[i] = side.kernel;
      of.stride[i] = side.stride;
      of.before[i] = side.before;
      of.dilation[i] = side.dilation;
    }
    return of;
  }

  kernels::WindowAttrs window_;
  int64_t groups_;
  bool transposed_;
  Device& device_;
  KeptMemory<float> columns_;
};

// The operands of a convolution or of its gradient in terms of ConvShape.
struct Operands {
  const Tensor* out;     // Output or its gradient
  const Tensor* image;   // with the windows
  const Tensor* result;  // with a position for each window
};
Operands operands_of(const ConvTensors& t, bool transposed) {
  const Tensor* const out = t.y != nullptr ? t.y : t.dy;
  return transposed ? Operands{out, out, t.x} : Operands{out, t.x, out};
}

Status run_gradient(Convolver& conv, const ConvShape& c, const ConvTensors& t, bool transposed) {
  const Operands o = operands_of(t, transposed);
  if (t.dw != nullptr)
    MILLRACE_RETURN_IF_ERROR(
        conv.filter_gradient(c, floats(o.image), floats(t.dw), floats(o.result)));
  if (t.dx == nullptr) return Ok();
  return transposed ? conv.output(c, floats(t.dy), floats(t.w), floats(t.dx))
                    : conv.input_gradient(c, floats(t.dx), floats(t.w), floats(t.dy));
}

// \param kTransposed  the images of the op change places: Input has the places of windows
template <bool kTransposed>
StatusOr<Kernel> make(const KernelSetup& op) {
  for (const char* const slot : {"Bias", "ResidualData"}) {
    if (op.input(slot)) return refuse("a convolution with {} runs on the CPU", slot);
  }
  if (op.output("Bias@GRAD")) return refuse("a convolution with Bias runs on the CPU");
  // the three-dimensional transposed op uses NDHWC for NCDHW
  const bool last = kTransposed ? op.attr<std::string>("data_format") == "NHWC"
                                : kernels::channels_last(op, "data_format");
  const auto conv = std::make_shared<Convolver>(op, kTransposed);
  Kernel kernel([conv, args = ConvArgs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const ConvTensors t, args.find(ctx));
    MILLRACE_RETURN_IF_ERROR(all_floats({t.x, t.w, t.dy, t.y}));
    const Operands o = operands_of(t, kTransposed);
    MILLRACE_ASSIGN_OR_RETURN(const ConvShape c, conv->shape(*o.image, *t.w, *o.result));
    if (t.y != nullptr && t.y->numel() == 0) return Ok();
    if (o.image->numel() == 0 || o.result->numel() == 0) return refuse("{}", describe(*o.out));
    if (t.y == nullptr) return run_gradient(*conv, c, t, kTransposed);
    return kTransposed ? conv->input_gradient(c, floats(t.y), floats(t.w), floats(t.x))
                       : conv->output(c, floats(t.x), floats(t.w), floats(t.y));
  });
  return in_channels_first(op, last, {"Input", "Output", "Output@GRAD", "Input@GRAD"},
                           std::move(kernel));
}

}  // namespace
}  // namespace volume_conv

void add_volume_conv(KernelRegistry& registry) {
  using namespace volume_conv;
  registry.add("conv3d", make<false>);
  registry.add("conv3d_grad", make<false>);
  for (const char* const type :
       {"conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose"})
    registry.add(type, make<true>);
  for (const char* const type :
       {"conv2d_transpose_grad", "depthwise_conv2d_transpose_grad", "conv3d_transpose_grad"})
    registry.add(type, make<true>);
}

}  // namespace millrace::gpu
