#include <memory>
#include <string>
#include <vector>

#include "framework/op_attrs.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/ops/channels_first.h"
#include "kernels/gpu/ops/conv_args.h"
#include "kernels/gpu/ops/halves.h"
#include "kernels/gpu/ops/kept_memory.h"
#include "kernels/registry.h"

namespace millrace::gpu {
namespace {

struct ConvSettings {
  kernels::WindowAttrs window;
  int64_t groups = 1;
};

StatusOr<ConvSettings> read_conv_settings(const KernelSetup& op) {
  if (get_attr_or<bool>(op.op(), "fuse_relu_before_depthwise_conv", false))
    return refuse("a convolution with attribute 'fuse_relu_before_depthwise_conv' runs on the CPU");
  for (const char* const slot : {"Bias", "ResidualData"}) {
    if (op.input(slot)) return refuse("a convolution with {} runs on the CPU", slot);
  }
  if (op.output("Bias@GRAD")) return refuse("a convolution with Bias runs on the CPU");
  return ConvSettings{kernels::read_window_attrs(op), op.attr<int64_t>("groups")};
}

// Shapes for both directions. Errors: rejects calls whose shapes do not fit.
StatusOr<Convolution> gpu_describe(const ConvSettings& settings, const Tensor& x, const Tensor& w,
                                   const Tensor& y) {
  const auto misfit = [&] {
    return refuse("Input {}, Filter {}, Output {}", describe(x), describe(w), describe(y));
  };
  if (x.rank() != 4 || w.rank() != 4 || y.rank() != 4 || settings.groups < 1) return misfit();
  StatusOr<ops::Window> window =
      kernels::window_over(settings.window, w.dims().drop_front(2), x.dims().drop_front(2));
  if (!window.ok()) return misfit();
  Convolution c;
  c.batch = x.dim(0);
  c.in_channels = x.dim(1);
  c.out_channels = w.dim(0);
  c.groups = settings.groups;
  for (size_t i = 0; i < 2; ++i) {
    c.in[i] = x.dims()[2 + i];
    c.out[i] = y.dims()[2 + i];
    c.kernel[i] = w.dims()[2 + i];
    c.stride[i] = window->strides[i];
    c.before[i] = window->before[i];
    c.dilation[i] = window->dilations.empty() ? 1 : window->dilations[i];
    if (c.out[i] != ops::window_places(*window, i, c.in[i])) return misfit();
  }
  if (w.dim(1) * c.groups != c.in_channels || c.out_channels % c.groups != 0 ||
      y.dim(0) != c.batch || y.dim(1) != c.out_channels)
    return misfit();
  return c;
}

// Each of the three tensors is an input of two of the computations.
void* memory(const Tensor& tensor) {
  return const_cast<std::byte*>(tensor.raw());
}

Status gpu_convolve(Device& device, Convolution& c, const ConvTensors& t) {
  if (t.y->numel() == 0) return Ok();
  c.input = memory(*t.x);
  c.filter = memory(*t.w);
  c.output = memory(*t.y);
  return device.convolve(c);
}

Status gpu_convolve_back(Device& device, Convolution& c, const ConvTensors& t) {
  if (t.dy->numel() == 0) return refuse("there are no places");
  c.output = memory(*t.dy);
  if (t.dw != nullptr) {
    c.what = Convolution::What::kFilterGradient;
    c.input = memory(*t.x);
    c.filter = memory(*t.dw);
    MILLRACE_RETURN_IF_ERROR(device.convolve(c));
  }
  if (t.dx == nullptr) return Ok();
  c.what = Convolution::What::kInputGradient;
  c.input = memory(*t.dx);
  c.filter = memory(*t.w);
  return device.convolve(c);
}

// Of conv2d, depthwise_conv2d and their gradients.
StatusOr<Kernel> gpu_conv(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const ConvSettings settings, read_conv_settings(op));
  Kernel kernel(
      [settings, &device = device_of(op), args = ConvArgs(op)](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const ConvTensors t, args.find(ctx));
        MILLRACE_ASSIGN_OR_RETURN(const Element element, element_of({t.x, t.w, t.y, t.dy}));
        const Tensor& y = t.y != nullptr ? *t.y : *t.dy;
        MILLRACE_ASSIGN_OR_RETURN(Convolution c, gpu_describe(settings, *t.x, *t.w, y));
        c.element = element;
        return t.y != nullptr ? gpu_convolve(device, c, t) : gpu_convolve_back(device, c, t);
      });
  return in_channels_first(op, kernels::channels_last(op, "data_format"),
                           {"Input", "Output", "Output@GRAD", "Input@GRAD"}, std::move(kernel));
}

// fused_conv2d: a convolution, and what follows it in one functor.
class GpuFusedConv {
 public:
  static StatusOr<Kernel> make(const KernelSetup& op) {
    if (kernels::channels_last(op, "data_format")) return refuse("channels are last");
    if (!op.attr<std::string>("fuse_activation").empty())
      return refuse("the activation of the original's passes runs on the CPU");
    const auto fused = std::make_shared<GpuFusedConv>(op);
    return Kernel([fused](const KernelContext& ctx) { return fused->run(ctx); });
  }

  explicit GpuFusedConv(const KernelSetup& op)
      : settings_{kernels::read_window_attrs(op), op.attr<int64_t>("groups")},
        device_(device_of(op)),
        input_(op.input("Input")),
        filter_(op.input("Filter")),
        residual_(op.attr<bool>("fuse_residual_connection") ? op.input("ResidualData")
                                                            : ArgIndex{}),
        output_(op.output("Output")),
        apart_(memory_of(op), "work space of fused_conv2d") {
    for (const char* const slot : {"Bias", "Scale", "Shift", "Mean", "Variance"})
      vectors_.push_back(op.input(slot));
    const auto activation = op.attr<std::string>("activation");
    finish_.epsilon = op.attr<float>("epsilon");
    finish_.alpha = op.attr<float>("alpha");
    if (activation == "relu") finish_.rectifier = FinishConv::Rectifier::kRelu;
    if (activation == "relu6") finish_.rectifier = FinishConv::Rectifier::kRelu6;
    if (activation == "leaky_relu") finish_.rectifier = FinishConv::Rectifier::kLeakyRelu;
  }

  Status run(const KernelContext& ctx) {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed_here(ctx, input_, "Input"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const w, needed_here(ctx, filter_, "Filter"));
    Tensor& y = ctx.out(output_);
    MILLRACE_RETURN_IF_ERROR(all_floats({x, w, &y}));
    MILLRACE_ASSIGN_OR_RETURN(Convolution c, gpu_describe(settings_, *x, *w, y));
    MILLRACE_ASSIGN_OR_RETURN(FinishConv finish, operands(ctx, y, c.out_channels));
    if (y.numel() == 0) return Ok();
    c.input = memory(*x);
    c.filter = memory(*w);
    float* convolved = floats(y);
    if (finish.residual == convolved) {  // the convolution would overwrite it
      MILLRACE_ASSIGN_OR_RETURN(convolved, apart_.get(y.numel()));
    }
    c.output = convolved;
    MILLRACE_RETURN_IF_ERROR(device_.convolve(c));
    finish.conv = convolved;
    finish.y = floats(y);
    return each(device_, finish, y.numel());
  }

 private:
  // Errors: rejects the call for other operands than the CPU kernel folds.
  StatusOr<FinishConv> operands(const KernelContext& ctx, const Tensor& y, int64_t channels) const {
    FinishConv finish = finish_;
    if (y.numel() >= int64_t{1} << 32) return refuse("the result has 2^32 elements or more");
    finish.channels = static_cast<uint32_t>(channels);
    finish.inner = static_cast<uint32_t>(y.dim(2) * y.dim(3));
    const float** const places[] = {&finish.bias, &finish.scale, &finish.shift, &finish.mean,
                                    &finish.variance};
    for (size_t i = 0; i < vectors_.size(); ++i) {
      const Tensor* const vector = ctx.find_in(vectors_[i]);
      MILLRACE_RETURN_IF_ERROR(all_floats({vector}));
      if (vector != nullptr && vector->numel() != channels)
        return refuse("a vector for {} channels is {}", channels, describe(*vector));
      *places[i] = floats(vector);
    }
    if ((finish.mean == nullptr) != (finish.variance == nullptr))
      return refuse("Mean and Variance are given only together");
    const Tensor* const residual = ctx.find_in(residual_);
    if (residual != nullptr && (residual->dims() != y.dims() || residual->dtype() != y.dtype()))
      return refuse("ResidualData is {}, but Output is {}", describe(*residual), describe(y));
    finish.residual = floats(residual);
    return finish;
  }

  ConvSettings settings_;
  Device& device_;
  ArgIndex input_, filter_, residual_, output_;
  std::vector<ArgIndex> vectors_;  ///< Bias, Scale, Shift, Mean, Variance
  FinishConv finish_{};            ///< with what the attributes say
  KeptMemory<float> apart_;        ///< for the result of the convolution alone
};

}  // namespace

void add_conv(KernelRegistry& registry) {
  registry.add("fused_conv2d", GpuFusedConv::make);
  for (const char* const type :
       {"conv2d", "depthwise_conv2d", "conv2d_grad", "depthwise_conv2d_grad"})
    registry.add(type, gpu_conv);
}

}  // namespace millrace::gpu
