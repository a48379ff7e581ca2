#include "kernels/cpu/gradient.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/interp_taps.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// Calls body(line of the input, weight) for the input lines that contribute to output line (d, h).
template <typename Body>
void for_tap_lines(const InterpPlan& p, int64_t d, int64_t h, Body&& body) {
  const InterpAxis& depth = p.axes[0];
  const InterpAxis& height = p.axes[1];
  for (int64_t i = d * depth.taps; i < (d + 1) * depth.taps; ++i) {
    for (int64_t k = h * height.taps; k < (h + 1) * height.taps; ++k) {
      const auto di = static_cast<size_t>(i);
      const auto hi = static_cast<size_t>(k);
      body(depth.index[di] * height.in + height.index[hi], depth.weight[di] * height.weight[hi]);
    }
  }
}

// Calls body(depth, height) for all lines of the output, with the sums of a line of the input,
// zeros at the start, in `blend`.
template <typename T, typename Body>
void for_out_lines(const InterpPlan& p, T* blend, Body&& body) {
  for (int64_t d = 0; d < p.axes[0].out; ++d) {
    for (int64_t h = 0; h < p.axes[1].out; ++h) {
      std::fill_n(blend, p.axes[2].in * p.lanes, T{0});
      body(d, h);
    }
  }
}

// Interpolates between lines first, then between the elements of a line.
template <typename T>
void forward_part(const InterpPlan& p, const T* x, T* blend, T* out) {
  const InterpAxis& width = p.axes[2];
  const int64_t line = width.in * p.lanes;
  for_out_lines(p, blend, [&](int64_t d, int64_t h) {
    for_tap_lines(p, d, h, [&](int64_t from, double weight) {
      const T* const row = x + from * line;
      const T w = static_cast<T>(weight);
      for (int64_t i = 0; i < line; ++i) blend[i] += w * row[i];
    });
    for (int64_t i = 0; i < width.out; ++i, out += p.lanes) {
      std::fill_n(out, p.lanes, T{0});
      for (int64_t k = i * width.taps; k < (i + 1) * width.taps; ++k) {
        const T w = static_cast<T>(width.weight[static_cast<size_t>(k)]);
        const T* const from = blend + width.index[static_cast<size_t>(k)] * p.lanes;
        for (int64_t c = 0; c < p.lanes; ++c) out[c] += w * from[c];
      }
    }
  });
}

// Calls body(element of the input, its weight) for the input elements that contribute to output (d,
// h, w), in the order in which the original adds them up: columns first in images, last in volumes.
template <typename Body>
void for_tap_pixels(const InterpPlan& p, int64_t d, int64_t h, int64_t w, Body&& body) {
  const InterpAxis& height = p.axes[1];
  const InterpAxis& width = p.axes[2];
  const auto visit = [&](int64_t i, int64_t k, int64_t m) {
    const auto at = [](int64_t place) { return static_cast<size_t>(place); };
    const InterpAxis& depth = p.axes[0];
    const int64_t line = depth.index[at(i)] * height.in + height.index[at(k)];
    body((line * width.in + width.index[at(m)]) * p.lanes, static_cast<float>(depth.weight[at(i)]),
         static_cast<float>(height.weight[at(k)]), static_cast<float>(width.weight[at(m)]));
  };
  const bool columns_first = p.axes[0].taps == 1;
  const int64_t outer = columns_first ? width.taps : height.taps;
  const int64_t inner = columns_first ? height.taps : width.taps;
  for (int64_t i = d * p.axes[0].taps; i < (d + 1) * p.axes[0].taps; ++i) {
    for (int64_t a = 0; a < outer; ++a) {
      for (int64_t b = 0; b < inner; ++b)
        visit(i, h * height.taps + (columns_first ? b : a),
              w * width.taps + (columns_first ? a : b));
    }
  }
}

// Integer pixels are copied, or interpolated in float and truncated, as in the original.
template <typename T>
void forward_pixels(const InterpPlan& p, const T* x, T* out) {
  const InterpAxis& width = p.axes[2];
  for (int64_t d = 0; d < p.axes[0].out; ++d) {
    for (int64_t h = 0; h < p.axes[1].out; ++h) {
      for (int64_t i = 0; i < width.out; ++i, out += p.lanes) {
        for (int64_t c = 0; c < p.lanes; ++c) {
          float sum = 0;
          T last{};
          for_tap_pixels(p, d, h, i, [&](int64_t from, float wd, float wh, float ww) {
            last = x[from + c];
            // rounded before it is added: no fused multiply-add
            const double part =
                static_cast<double>(static_cast<float>(last) * wd * wh) * static_cast<double>(ww);
            sum += static_cast<float>(part);
          });
          out[c] = p.copies() ? last : static_cast<T>(sum);
        }
      }
    }
  }
}

// Calls fn(tag) for the element types that support this resizing.
template <typename Fn>
Status dispatch_pixels(DType dtype, const InterpPlan& plan, Fn&& fn) {
  if (dtype == DType::kUint8) return dispatch<Types<uint8_t>>(dtype, fn);
  if (plan.copies() && (dtype == DType::kInt32 || dtype == DType::kInt64))
    return dispatch<IntTypes>(dtype, fn);
  return dispatch<FloatTypes>(dtype, fn);
}

template <typename T>
void backward_part(const InterpPlan& p, const T* dout, T* blend, T* dx) {
  const InterpAxis& width = p.axes[2];
  const int64_t line = width.in * p.lanes;
  std::fill_n(dx, p.in(), T{0});
  for_out_lines(p, blend, [&](int64_t d, int64_t h) {
    for (int64_t i = 0; i < width.out; ++i, dout += p.lanes) {
      for (int64_t k = i * width.taps; k < (i + 1) * width.taps; ++k) {
        const T w = static_cast<T>(width.weight[static_cast<size_t>(k)]);
        T* const to = blend + width.index[static_cast<size_t>(k)] * p.lanes;
        for (int64_t c = 0; c < p.lanes; ++c) to[c] += w * dout[c];
      }
    }
    for_tap_lines(p, d, h, [&](int64_t to, double weight) {
      T* const row = dx + to * line;
      const T w = static_cast<T>(weight);
      for (int64_t i = 0; i < line; ++i) row[i] += w * blend[i];
    });
  });
}

// Calls body(part, buffer for one line of the input) for all planes or images.
template <typename T, typename Body>
Status for_parts(CpuDevice& device, const InterpPlan& p, Body&& body) {
  const int64_t line = p.axes[2].in * p.lanes;
  const int64_t work = std::max<int64_t>(p.in() + p.out(), 1);
  const int64_t ranges = std::clamp<int64_t>(p.parts * work / 32768, 1, device.threads());
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory,
                            device.scratch(static_cast<size_t>(ranges * line) * sizeof(T)));
  device.parallel_for(ranges, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* const blend = reinterpret_cast<T*>(memory) + r * line;
      for (int64_t i = p.parts * r / ranges; i < p.parts * (r + 1) / ranges; ++i) body(i, blend);
    }
  });
  return Ok();
}

StatusOr<Kernel> interp(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  return Kernel([=, attrs = read_interp_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const InterpPlan plan, plan_interp(ctx, attrs, *in));
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(to.resize(in->dtype(), interp_dims(plan, attrs, *in)));
    return dispatch_pixels(in->dtype(), plan, [&](auto tag) {
      using T = typename decltype(tag)::type;
      return for_parts<T>(ctx.device(), plan, [&](int64_t i, T* blend) {
        const T* const from = in->data<T>() + i * plan.in();
        if constexpr (std::is_integral_v<T>) {
          forward_pixels(plan, from, to.data<T>() + i * plan.out());
        } else {
          forward_part(plan, from, blend, to.data<T>() + i * plan.out());
        }
      });
    });
  });
}

StatusOr<Kernel> interp_grad(const KernelSetup& op) {
  const GradientArgs gradient(op);
  return Kernel([=, attrs = read_interp_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GradientTensors g, gradient.like_x(ctx, StartsAs::kUnset));
    if (!g) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const InterpPlan plan, plan_interp(ctx, attrs, *g.x));
    const Dims wanted = interp_dims(plan, attrs, *g.x);
    if (g.from->dtype() != g.x->dtype() || g.from->dims() != llvm::ArrayRef<int64_t>(wanted))
      return ctx.error("Out@GRAD must have dims {} for X {}, found {}", ops::dims_text(wanted),
                       describe(*g.x), describe(*g.from));
    return dispatch<FloatTypes>(g.x->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      return for_parts<T>(ctx.device(), plan, [&](int64_t i, T* blend) {
        backward_part(plan, g.from->data<T>() + i * plan.out(), blend,
                      g.to->data<T>() + i * plan.in());
      });
    });
  });
}

}  // namespace

void add_nn_interp(KernelRegistry& registry) {
  for (const char* const type :
       {"bicubic_interp", "bilinear_interp", "linear_interp", "nearest_interp", "trilinear_interp",
        "bicubic_interp_v2", "bilinear_interp_v2", "linear_interp_v2", "nearest_interp_v2",
        "trilinear_interp_v2"})
    registry.add(type, interp);
  for (const char* const type :
       {"bicubic_interp_grad", "bilinear_interp_grad", "linear_interp_grad", "nearest_interp_grad",
        "trilinear_interp_grad", "bicubic_interp_v2_grad", "bilinear_interp_v2_grad",
        "linear_interp_v2_grad", "nearest_interp_v2_grad", "trilinear_interp_v2_grad"})
    registry.add(type, interp_grad);
}

}  // namespace millrace::kernels
