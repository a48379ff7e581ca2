#include "kernels/cpu/quant/grid.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/tensor/axis_view.h"
#include "kernels/registry.h"

// quantize_linear and dequantize_linear: integers stored as floating point, with one scale per
// tensor or per channel.
namespace millrace::kernels {
namespace {

struct LinearArgs {
  explicit LinearArgs(const KernelSetup& op)
      : x(op.input("X")),
        scale(op.input("Scale")),
        zero(op.input("ZeroPoint")),
        in_accum(op.input("InAccum")),
        in_state(op.input("InState")),
        y(op.output("Y")),
        out_scale(op.output("OutScale")),
        out_accum(op.output("OutAccum")),
        out_state(op.output("OutState")),
        axis(op.attr<int64_t>("quant_axis")),
        rate(op.attr<float>("moving_rate")),
        is_test(op.attr<bool>("is_test")),
        only_observer(op.attr<bool>("only_observer")),
        grid(op, false) {}
  ArgIndex x, scale, zero, in_accum, in_state;
  ArgIndex y, out_scale, out_accum, out_state;
  int64_t axis;
  float rate;
  bool is_test;
  bool only_observer;
  Grid grid;
};

// The tensor viewed by channels, to match the scales.
StatusOr<AxisView> view_of(const KernelContext& ctx, const LinearArgs& args) {
  const Tensor& x = ctx.in(args.x);
  if (args.axis >= static_cast<int64_t>(x.rank()))
    return ctx.error("attribute 'quant_axis' is {}, expected -1 or a dim of X {}", args.axis,
                     describe(x));
  const int64_t all[] = {1, x.numel()};
  return args.axis < 0 ? AxisView(all, 0) : AxisView(x.dims(), static_cast<size_t>(args.axis));
}

// \returns null if the op lacks the input
template <typename T>
StatusOr<const T*> per_channel(const KernelContext& ctx, ArgIndex arg, const char* slot,
                               const AxisView& view, DType dtype) {
  const Tensor* const tensor = ctx.find_in(arg);
  if (tensor == nullptr) return static_cast<const T*>(nullptr);
  if (tensor->dtype() != dtype) {
    return ctx.error("{} must be of the type of X, found {}", slot, describe(*tensor));
  }
  if (tensor->numel() == view.size) return tensor->data<T>();
  return ctx.error("{} must have {} elements, found {}", slot, view.size, describe(*tensor));
}

// The scales are the maxima of the channels. That of a whole tensor is a moving average if the op
// has its state.
template <typename T>
Status update_scales(const KernelContext& ctx, const LinearArgs& args, const AxisView& view,
                     const T* x, std::vector<T>& scales) {
  const Tensor* const state = ctx.find_in(args.in_state);
  const Tensor* const accum = ctx.find_in(args.in_accum);
  for (int64_t c = 0; c < view.size; ++c) {
    T largest{};
    for (int64_t o = 0; o < view.outer; ++o)
      largest =
          std::max(largest, largest_magnitude(x + (o * view.size + c) * view.inner, view.inner));
    scales[static_cast<size_t>(c)] = largest;
  }
  if (args.axis >= 0 || (state == nullptr && accum == nullptr)) return Ok();
  for (const Tensor* const part : {state, accum}) {
    if (part == nullptr || part->dtype() != kDTypeOf<T> || part->numel() != 1)
      return ctx.error("InState and InAccum must be one number each, of the type of X, found {}",
                       part == nullptr ? "nothing" : describe(*part));
  }
  const T count = static_cast<T>(args.rate) * *state->data<T>() + T(1);
  const T sum = static_cast<T>(args.rate) * *accum->data<T>() + scales[0];
  scales[0] = sum / count;
  if (Tensor* const out = ctx.find_out(args.out_state)) *out->data<T>() = count;
  if (Tensor* const out = ctx.find_out(args.out_accum)) *out->data<T>() = sum;
  return Ok();
}

// An op that only observes the values passes them on.
Status copy_observed(const KernelContext& ctx, const Tensor& x, Tensor& y) {
  copy_bytes(ctx.device(), y.raw(), x.raw(), x.bytes());
  return Ok();
}

// Calls body(channel, elements of X, elements of Y) for all runs of view.inner elements.
template <typename T, typename Body>
void for_channel_runs(const AxisView& view, const Tensor& x, Tensor& y, Body&& body) {
  for (int64_t r = 0; r < view.outer * view.size; ++r)
    body(static_cast<size_t>(r % view.size), x.data<T>() + r * view.inner,
         y.data<T>() + r * view.inner);
}

template <typename T>
Status quantize_as(const KernelContext& ctx, const LinearArgs& args) {
  const Tensor& x = ctx.in(args.x);
  MILLRACE_ASSIGN_OR_RETURN(const AxisView view, view_of(ctx, args));
  MILLRACE_ASSIGN_OR_RETURN(const T* const given,
                            per_channel<T>(ctx, args.scale, "Scale", view, x.dtype()));
  MILLRACE_RETURN_IF_ERROR(check_zero_point(ctx, args.zero, "ZeroPoint"));
  std::vector<T> scales(static_cast<size_t>(view.size));
  if (args.is_test) {
    if (given == nullptr) return ctx.error("input Scale holds no tensor");
    std::copy(given, given + view.size, scales.begin());
  } else {
    MILLRACE_RETURN_IF_ERROR(update_scales(ctx, args, view, x.data<T>(), scales));
  }
  if (Tensor* const out = ctx.find_out(args.out_scale); out != nullptr && !args.is_test)
    std::copy(scales.begin(), scales.end(), out->data<T>());
  Tensor& y = ctx.out(args.y);
  if (args.only_observer) return copy_observed(ctx, x, y);
  for_channel_runs<T>(view, x, y, [&](size_t c, const T* from, T* to) {
    round_to_grid(from, to, view.inner, scales[c], args.grid);
  });
  return Ok();
}

template <typename T>
Status dequantize_as(const KernelContext& ctx, const LinearArgs& args) {
  const Tensor& x = ctx.in(args.x);
  MILLRACE_ASSIGN_OR_RETURN(const AxisView view, view_of(ctx, args));
  MILLRACE_ASSIGN_OR_RETURN(const T* const scales,
                            per_channel<T>(ctx, args.scale, "Scale", view, x.dtype()));
  MILLRACE_RETURN_IF_ERROR(check_zero_point(ctx, args.zero, "ZeroPoint"));
  if (scales == nullptr) return ctx.error("input Scale holds no tensor");
  Tensor& y = ctx.out(args.y);
  if (args.only_observer) return copy_observed(ctx, x, y);
  for_channel_runs<T>(view, x, y, [&](size_t c, const T* from, T* to) {
    const T factor = scales[c] / static_cast<T>(args.grid.bins);
    for (int64_t i = 0; i < view.inner; ++i) to[i] = from[i] * factor;
  });
  return Ok();
}

StatusOr<Kernel> quantize_linear(const KernelSetup& op) {
  const LinearArgs args(op);
  return Kernel([args](const KernelContext& ctx) -> Status {
    return dispatch<FloatTypes>(ctx.in(args.x).dtype(), [&](auto tag) -> Status {
      return quantize_as<typename decltype(tag)::type>(ctx, args);
    });
  });
}

StatusOr<Kernel> dequantize_linear(const KernelSetup& op) {
  const LinearArgs args(op);
  return Kernel([args](const KernelContext& ctx) -> Status {
    return dispatch<FloatTypes>(ctx.in(args.x).dtype(), [&](auto tag) -> Status {
      return dequantize_as<typename decltype(tag)::type>(ctx, args);
    });
  });
}

}  // namespace

void add_quant_linear_quantize(KernelRegistry& registry) {
  registry.add("quantize_linear", quantize_linear);
  registry.add("dequantize_linear", dequantize_linear);
}

}  // namespace millrace::kernels
