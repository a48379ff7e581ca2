#include <algorithm>
#include <memory>
#include <string>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/conv_pass.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// conv2d_fusion: the original's convolution for inference with bias, another summand and an
// activation. It can split the channels of the result into several outputs.
namespace millrace::kernels {
namespace {

template <typename T, typename Fn>
void map_in_place(CpuDevice& device, Tensor& images, Fn fn) {
  T* const data = images.data<T>();
  device.parallel_for(images.numel(), 32768, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) data[i] = fn(data[i]);
  });
}

template <typename T>
void activate_images(CpuDevice& device, Tensor& images, const std::string& name, T alpha) {
  if (name == "relu" || name == "relux")
    return map_in_place<T>(device, images, [](T x) { return x < T{0} ? T{0} : x; });
  if (name == "relu6")
    return map_in_place<T>(device, images, [](T x) { return std::min(std::max(x, T{0}), T{6}); });
  if (name == "sigmoid")
    return map_in_place<T>(device, images, [](T x) { return vmath::sigmoid(x); });
  if (name == "tanh") return map_in_place<T>(device, images, [](T x) { return vmath::tanh(x); });
  if (name == "swish")
    return map_in_place<T>(device, images, [](T x) { return x * vmath::sigmoid(x); });
  if (name == "leaky_relu")
    return map_in_place<T>(device, images, [alpha](T x) { return x > T{0} ? x : alpha * x; });
}

// Copies channels from `first` on; the channels of the images are in dim `channel`.
void copy_channels(CpuDevice& device, const Tensor& images, size_t channel, int64_t first,
                   Tensor& part) {
  const Dims from = row_major(images.dims());
  const Dims to = row_major(part.dims());
  StridedBox box;
  for (size_t d = 0; d < part.rank(); ++d) box.push(part.dims()[d], to[d], from[d]);
  const int64_t size = dtype_size(images.dtype());
  copy_strided(device, size, box, part.raw(), images.raw() + first * from[channel] * size);
}

struct ConvFusionSlots {
  ArgIndex input, filter, bias, residual, output;
  ArgRange outputs;
};

StatusOr<Kernel> conv_fusion(const KernelSetup& op) {
  const ConvFusionSlots slots{op.input("Input"),        op.input("Filter"),  op.input("Bias"),
                              op.input("ResidualData"), op.output("Output"), op.outputs("Outputs")};
  const ConvAttrs attrs = read_conv_attrs(op);
  const auto activation = op.attr<std::string>("activation");
  const auto alpha = op.attr<float>("fuse_alpha");
  if (activation == "band_pass") {
    // the op has no attributes for its bounds, and the original refuses it as well
    return Status(StatusCode::kUnimplemented,
                  fmt::format("activation '{}' of {}", activation, op.def().type().str()));
  }
  const auto pass = std::make_shared<ConvPass>(ConvPass::Kind::kForward, attrs);
  return Kernel([=, last = attrs.channels_last](const KernelContext& ctx) -> Status {
    Tensor& out = ctx.out(slots.output);
    if (out.numel() > 0) {
      Tensor* const residual =
          ctx.find_in(slots.residual) == nullptr ? nullptr : &ctx.stored_in(slots.residual);
      MILLRACE_RETURN_IF_ERROR(
          pass->run(ctx.device(), {ctx.stored_in(slots.input), ctx.stored_in(slots.filter), out},
                    {}, ctx.find_in(slots.bias), residual));
      MILLRACE_RETURN_IF_ERROR(dispatch<FloatTypes>(out.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        activate_images(ctx.device(), out, activation, static_cast<T>(alpha));
        return Ok();
      }));
    }
    const size_t channel = last ? out.rank() - 1 : 1;
    int64_t first = 0;
    for (int32_t k = 0; k < slots.outputs.count; ++k) {
      Tensor& part = ctx.out(slots.outputs, k);
      if (out.numel() > 0) copy_channels(ctx.device(), out, channel, first, part);
      first += part.dim(static_cast<int64_t>(channel));
    }
    return Ok();
  });
}

}  // namespace

void add_nn_conv_fusion(KernelRegistry& registry) {
  registry.add("conv2d_fusion", conv_fusion);
  registry.add("fused_conv2d_add_act", conv_fusion);
}

}  // namespace millrace::kernels
