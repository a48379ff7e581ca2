#include "kernels/cpu/tensor/axis_view.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace dequantize_kernels {
namespace {

using StoredTypes = Types<float, double, int8_t, int16_t, int32_t>;

// out = x * factor, for a run of elements.
template <typename T, typename C>
void multiply(const T* x, C* out, int64_t count, C factor) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<C>(x[i]) * factor;
}

// Calls fn(x, out) with the stored type of x and the floating-point type of the output.
template <typename Fn>
Status with_types(const Tensor& x, Tensor& out, Fn&& fn) {
  return dispatch<FloatTypes>(out.dtype(), [&](auto out_tag) -> Status {
    return dispatch<StoredTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      return fn(x.data<T>(), out.data<typename decltype(out_tag)::type>());
    });
  });
}

Status check_scale(const KernelContext& ctx, const Tensor& scale, const Tensor& out,
                   int64_t count) {
  if (scale.dtype() == out.dtype() && scale.numel() == count) return Ok();
  return ctx.error("the scale must be {} with {} elements, found {}", dtype_name(out.dtype()),
                   count, describe(scale));
}

StatusOr<Kernel> dequantize(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex scale_arg = op.input("Scale");
  const ArgIndex out_arg = op.output("Out");
  const double range = op.attr<float>("max_range");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    const Tensor& scale = ctx.in(scale_arg);
    Tensor& out = ctx.out(out_arg);
    MILLRACE_RETURN_IF_ERROR(check_scale(ctx, scale, out, 1));
    return with_types(x, out, [&]<typename T, typename C>(const T* from, C* to) -> Status {
      multiply(from, to, x.numel(), *scale.data<C>() / static_cast<C>(range));
      return Ok();
    });
  });
}

// With one scale: per channel along quant_axis. With two: per channel along x_num_col_dims, and one
// for the whole tensor.
StatusOr<Kernel> dequantize_channels(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgRange scales = op.inputs("Scales");
  const ArgIndex out_arg = op.output("Out");
  const auto bits = op.attr<std::vector<int64_t>>("quant_bits");
  const auto axis = static_cast<size_t>(scales.count == 1 ? op.attr<int64_t>("quant_axis")
                                                          : op.attr<int64_t>("x_num_col_dims"));
  if (scales.count < 1 || scales.count > 2 || bits.size() < static_cast<size_t>(scales.count))
    return op.error("Scales has {} vars and attribute 'quant_bits' {} entries, expected 1 or 2",
                    scales.count, bits.size());
  double range = 1;
  for (int32_t k = 0; k < scales.count; ++k)
    range *= static_cast<double>((int64_t{1} << (bits[static_cast<size_t>(k)] - 1)) - 1);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    Tensor& out = ctx.out(out_arg);
    if (axis >= x.rank()) return ctx.error("dim {} is not a dim of X {}", axis, describe(x));
    const AxisView view(x.dims(), axis);
    MILLRACE_RETURN_IF_ERROR(check_scale(ctx, ctx.in(scales, 0), out, view.size));
    if (scales.count == 2) MILLRACE_RETURN_IF_ERROR(check_scale(ctx, ctx.in(scales, 1), out, 1));
    return with_types(x, out, [&]<typename T, typename C>(const T* from, C* to) -> Status {
      const C* const channels = ctx.in(scales, 0).data<C>();
      const C all = scales.count == 2 ? *ctx.in(scales, 1).data<C>() : C(1);
      for (int64_t r = 0; r < view.outer * view.size; ++r) {
        const C factor = channels[r % view.size] * all / static_cast<C>(range);
        multiply(from + r * view.inner, to + r * view.inner, view.inner, factor);
      }
      return Ok();
    });
  });
}

}  // namespace
}  // namespace dequantize_kernels

void add_quant_dequantize(KernelRegistry& registry) {
  using namespace dequantize_kernels;
  registry.add("fake_dequantize_max_abs", dequantize);
  registry.add("dequantize_abs_max", dequantize);
  registry.add("fake_channel_wise_dequantize_max_abs", dequantize_channels);
}

}  // namespace millrace::kernels
