#include "kernels/cpu/int_list.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/quant/grid.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/tensor/axis_view.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace fake_quantize {
namespace {

// The value of a one-element tensor as double; 0 if the op lacks the input.
StatusOr<double> value_of(const KernelContext& ctx, ArgIndex arg, const char* slot) {
  const Tensor* const tensor = ctx.find_in(arg);
  if (tensor == nullptr) return 0.0;
  if (tensor->numel() == 1 && tensor->dtype() == DType::kFloat64) return *tensor->data<double>();
  if (tensor->numel() == 1 && tensor->dtype() == DType::kFloat32)
    return static_cast<double>(*tensor->data<float>());
  return ctx.error("{} must be one f32 or f64, found {}", slot, describe(*tensor));
}

void store(Tensor* tensor, double value) {
  if (tensor == nullptr || tensor->numel() < 1) return;
  if (tensor->dtype() == DType::kFloat64) *tensor->data<double>() = value;
  if (tensor->dtype() == DType::kFloat32) *tensor->data<float>() = static_cast<float>(value);
}

double magnitude_of(const Tensor& x) {
  double largest = 0;
  (void)dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    largest = static_cast<double>(largest_magnitude(x.data<T>(), x.numel()));
    return Ok();
  });
  return largest;
}

Status round_all(const Tensor& x, Tensor& out, double scale, const Grid& grid) {
  return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    round_to_grid(x.data<T>(), out.data<T>(), x.numel(), static_cast<T>(scale), grid);
    return Ok();
  });
}

StatusOr<Kernel> make_abs_max(const KernelSetup& op, bool back) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex out = op.output("Out");
  const ArgIndex scale_out = op.output("OutScale");
  const Grid grid(op, back);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    const double scale = magnitude_of(x);
    store(ctx.find_out(scale_out), scale);
    return round_all(x, ctx.out(out), scale, grid);
  });
}

StatusOr<Kernel> make_channel_wise(const KernelSetup& op, bool back) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex out_arg = op.output("Out");
  const ArgIndex scale_out = op.output("OutScale");
  const auto axis = static_cast<size_t>(op.attr<int64_t>("quant_axis"));
  const bool is_test = op.def().find_attr("is_test") != nullptr && op.attr<bool>("is_test");
  const Grid grid(op, back);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    Tensor& out = ctx.out(out_arg);
    Tensor* const scales = ctx.find_out(scale_out);
    if (axis >= x.rank())
      return ctx.error("attribute 'quant_axis' is {}, expected a dim of X {}", axis, describe(x));
    const AxisView view(x.dims(), axis);
    if (is_test &&
        (scales == nullptr || scales->numel() != view.size || scales->dtype() != x.dtype()))
      return ctx.error("OutScale must hold the {} scales to use, of the type of X", view.size);
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      for (int64_t c = 0; c < view.size; ++c) {
        T scale{};
        const auto run = [&](int64_t o) { return (o * view.size + c) * view.inner; };
        if (is_test) {
          scale = scales->data<T>()[c];
        } else {
          for (int64_t o = 0; o < view.outer; ++o)
            scale = std::max(scale, largest_magnitude(x.data<T>() + run(o), view.inner));
          if (scales != nullptr) scales->data<T>()[c] = scale;
        }
        for (int64_t o = 0; o < view.outer; ++o)
          round_to_grid(x.data<T>() + run(o), out.data<T>() + run(o), view.inner, scale, grid);
      }
      return Ok();
    });
  });
}

// Moving sum and count of maxima.
struct Moving {
  explicit Moving(const KernelSetup& op)
      : in_scale(op.input("InScale")),
        in_accum(op.input("InAccum")),
        in_state(op.input("InState")),
        out_scale(op.output("OutScale")),
        out_accum(op.output("OutAccum")),
        out_state(op.output("OutState")),
        rate(static_cast<double>(op.attr<float>("moving_rate"))),
        is_test(op.attr<bool>("is_test")) {}

  // Adds the maximum of x to the moving average. \returns the scale to use
  StatusOr<double> update(const KernelContext& ctx, const Tensor& x) const {
    if (is_test) {
      MILLRACE_RETURN_IF_ERROR(keep(ctx));
      MILLRACE_ASSIGN_OR_RETURN(const double scale, value_of(ctx, in_scale, "InScale"));
      store(ctx.find_out(out_scale), scale);
      return scale;
    }
    MILLRACE_ASSIGN_OR_RETURN(const double last_state, value_of(ctx, in_state, "InState"));
    MILLRACE_ASSIGN_OR_RETURN(const double last_accum, value_of(ctx, in_accum, "InAccum"));
    const double state = rate * last_state + 1;
    const double accum = rate * last_accum + magnitude_of(x);
    store(ctx.find_out(out_state), state);
    store(ctx.find_out(out_accum), accum);
    store(ctx.find_out(out_scale), accum / state);
    return accum / state;
  }

  // The state does not change. It may have the memory of another var, or new memory.
  [[nodiscard]] Status keep(const KernelContext& ctx) const {
    const struct {
      ArgIndex in, out;
      const char* slot;
    } pairs[] = {{in_state, out_state, "InState"}, {in_accum, out_accum, "InAccum"}};
    for (const auto& pair : pairs) {
      if (ctx.find_in(pair.in) == nullptr || ctx.find_out(pair.out) == nullptr) continue;
      MILLRACE_ASSIGN_OR_RETURN(const double value, value_of(ctx, pair.in, pair.slot));
      store(ctx.find_out(pair.out), value);
    }
    return Ok();
  }

  ArgIndex in_scale, in_accum, in_state;
  ArgIndex out_scale, out_accum, out_state;
  double rate;
  bool is_test;
};

StatusOr<Kernel> make_moving(const KernelSetup& op, bool back) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const Moving moving(op);
  const Grid grid(op, back);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const double scale, moving.update(ctx, ctx.in(x)));
    return round_all(ctx.in(x), ctx.out(out), scale, grid);
  });
}

StatusOr<Kernel> observe(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex out = op.output("Out");
  const Moving moving(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    // without input InScale, the scale of the last training step is not changed
    MILLRACE_RETURN_IF_ERROR(moving.is_test && !moving.in_scale ? moving.keep(ctx)
                                                                : moving.update(ctx, x).status());
    if (Tensor* const to = ctx.find_out(out))
      copy_bytes(ctx.device(), to->raw(), x.raw(), x.bytes());
    return Ok();
  });
}

// Largest of the last window_size maxima, which OutScales stores between steps.
double window_maximum(double current, double last, int64_t step, Tensor& window) {
  const int64_t size = window.numel();
  double largest = last;
  (void)dispatch<FloatTypes>(window.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    T* const kept = window.data<T>();
    const int64_t place = step % size;
    const double removed = step >= size ? static_cast<double>(kept[place]) : 0;
    kept[place] = static_cast<T>(current);
    if (current > largest) {
      largest = current;
    } else if (std::abs(removed - largest) < 1e-6) {
      const int64_t filled = std::min(step + 1, size);
      largest = static_cast<double>(largest_magnitude(kept, filled));
    }
    return Ok();
  });
  return largest;
}

StatusOr<Kernel> range_abs_max(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex iter_arg = op.input("Iter");
  const ArgIndex in_scale = op.input("InScale");
  const ArgIndex out = op.output("Out");
  const ArgIndex scale_out = op.output("OutScale");
  const ArgIndex window_out = op.output("OutScales");
  const ArgIndex iter_out = op.output("OutIter");
  const auto window_size = op.attr<int64_t>("window_size");
  const bool is_test = op.attr<bool>("is_test");
  const Grid grid(op, false);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    MILLRACE_ASSIGN_OR_RETURN(double scale, value_of(ctx, in_scale, "InScale"));
    if (!is_test) {
      int64_t step = 0;
      if (const Tensor* const iter = ctx.find_in(iter_arg)) {
        MILLRACE_ASSIGN_OR_RETURN(step, one_int(*iter, "Iter"));
      }
      if (step < 0) return ctx.error("Iter is {}, expected a step number", step);
      Tensor* const window = ctx.find_out(window_out);
      if (window != nullptr) {
        MILLRACE_RETURN_IF_ERROR(size_output(*window, x.dtype(), {window_size}));
        scale = window_maximum(magnitude_of(x), scale, step, *window);
      } else {
        scale = std::max(scale, magnitude_of(x));
      }
      if (Tensor* const next = ctx.find_out(iter_out)) {
        MILLRACE_RETURN_IF_ERROR(size_output(*next, DType::kInt64, {1}));
        *next->data<int64_t>() = step + 1;
      }
    } else if (Tensor* const same = ctx.find_out(iter_out); same != nullptr && iter_arg) {
      MILLRACE_ASSIGN_OR_RETURN(const int64_t step, one_int(ctx.in(iter_arg), "Iter"));
      MILLRACE_RETURN_IF_ERROR(size_output(*same, DType::kInt64, {1}));
      *same->data<int64_t>() = step;
    }
    store(ctx.find_out(scale_out), scale);
    return round_all(x, ctx.out(out), scale, grid);
  });
}

StatusOr<Kernel> straight_through(const KernelSetup& op) {
  const ArgIndex grad = op.input("Out@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed(ctx, grad, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, x_grad, *from));
    if (to == nullptr) return Ok();
    copy_bytes(ctx.device(), to->raw(), from->raw(), from->bytes());
    return Ok();
  });
}

template <auto Make, bool kBack>
StatusOr<Kernel> with(const KernelSetup& op) {
  return Make(op, kBack);
}

}  // namespace
}  // namespace fake_quantize

void add_quant_fake_quantize(KernelRegistry& registry) {
  using namespace fake_quantize;
  registry.add("fake_quantize_abs_max", with<make_abs_max, false>);
  registry.add("fake_quantize_dequantize_abs_max", with<make_abs_max, true>);
  registry.add("fake_channel_wise_quantize_abs_max", with<make_channel_wise, false>);
  registry.add("fake_channel_wise_quantize_dequantize_abs_max", with<make_channel_wise, true>);
  registry.add("fake_quantize_moving_average_abs_max", with<make_moving, false>);
  registry.add("fake_quantize_dequantize_moving_average_abs_max", with<make_moving, true>);
  registry.add("moving_average_abs_max_scale", observe);
  registry.add("fake_quantize_range_abs_max", range_abs_max);
  registry.add("stright_throuth_estimator_grad", straight_through);
}

}  // namespace millrace::kernels
