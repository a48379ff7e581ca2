#include <cmath>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/nn/channels.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace lrn_kernels {
namespace {

struct LrnAttrs {
  int64_t half = 0;  // channels on each side
  double k = 0;
  double alpha = 0;
  double beta = 0;
  bool last = false;
};

LrnAttrs read_attrs(const KernelSetup& op) {
  return {op.attr<int64_t>("n") / 2, op.attr<float>("k"), op.attr<float>("alpha"),
          op.attr<float>("beta"), channels_last(op, "data_format")};
}

// Calls body(n, c, first, last) for all channels of all parts of the images: the sum of channel c
// runs over channels [first, last).
template <typename Body>
void for_neighbours(const ChannelLayout& l, int64_t half, Body&& body) {
  for (int64_t n = 0; n < l.outer; ++n) {
    for (int64_t c = 0; c < l.channels; ++c)
      body(n, c, std::max<int64_t>(c - half, 0), std::min(c + half + 1, l.channels));
  }
}

StatusOr<Kernel> lrn(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex out = op.output("Out");
  const ArgIndex mid_out = op.output("MidOut");
  return Kernel([=, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, x, "X"));
    const ChannelLayout l(in->dims(), attrs.last);
    return dispatch<FloatTypes>(in->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const T* const from = in->data<T>();
      T* const to = ctx.out(out).data<T>();
      Tensor* const kept = ctx.find_out(mid_out);
      MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory,
                                ctx.device().scratch(static_cast<size_t>(in->bytes())));
      T* const mid = kept == nullptr ? reinterpret_cast<T*>(memory) : kept->data<T>();
      std::fill_n(mid, in->numel(), static_cast<T>(attrs.k));
      const T alpha = static_cast<T>(attrs.alpha);
      for_neighbours(l, attrs.half, [&](int64_t n, int64_t c, int64_t first, int64_t last) {
        T* const sum = mid + (n * l.channels + c) * l.inner;
        for (int64_t k = first; k < last; ++k) {
          const T* const other = from + (n * l.channels + k) * l.inner;
          for (int64_t i = 0; i < l.inner; ++i) sum[i] += alpha * other[i] * other[i];
        }
      });
      const T power = static_cast<T>(-attrs.beta);
      for (int64_t i = 0; i < in->numel(); ++i) to[i] = from[i] * std::pow(mid[i], power);
      return Ok();
    });
  });
}

// d out[j] / d x[c] contains the power of mid at c, and -2 alpha beta x[c] out[j] / mid[j] for each
// j whose sum includes c.
template <typename T>
void backward(const ChannelLayout& l, const LrnAttrs& attrs, const T* x, const T* out, const T* mid,
              const T* dout, T* dx) {
  const int64_t count = l.outer * l.channels * l.inner;
  const T power = static_cast<T>(-attrs.beta);
  for (int64_t i = 0; i < count; ++i) dx[i] = dout[i] * std::pow(mid[i], power);
  const T ratio = static_cast<T>(-2 * attrs.alpha * attrs.beta);
  for_neighbours(l, attrs.half, [&](int64_t n, int64_t c, int64_t first, int64_t last) {
    const int64_t at = (n * l.channels + c) * l.inner;
    for (int64_t k = first; k < last; ++k) {
      const int64_t other = (n * l.channels + k) * l.inner;
      for (int64_t i = 0; i < l.inner; ++i) {
        dx[at + i] += ratio * x[at + i] * out[other + i] * dout[other + i] / mid[other + i];
      }
    }
  });
}

StatusOr<Kernel> lrn_grad(const KernelSetup& op) {
  const ArgIndex out = op.input("Out");
  const ArgIndex mid_out = op.input("MidOut");
  const GradientArgs gradient(op);
  return Kernel([=, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GradientTensors g, gradient.like_x(ctx, StartsAs::kUnset));
    if (!g) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const y, needed(ctx, out, "Out"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const mid, needed(ctx, mid_out, "MidOut"));
    MILLRACE_RETURN_IF_ERROR(check_alike(*g.x, "X", *g.from, "Out@GRAD"));
    MILLRACE_RETURN_IF_ERROR(check_alike(*g.x, "X", *y, "Out"));
    MILLRACE_RETURN_IF_ERROR(check_alike(*g.x, "X", *mid, "MidOut"));
    if (g.x->rank() < 2) return ctx.error("X must hold images, found {}", describe(*g.x));
    return dispatch<FloatTypes>(g.x->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      backward(ChannelLayout(g.x->dims(), attrs.last), attrs, g.x->data<T>(), y->data<T>(),
               mid->data<T>(), g.from->data<T>(), g.to->data<T>());
      return Ok();
    });
  });
}

}  // namespace
}  // namespace lrn_kernels

void add_nn_lrn(KernelRegistry& registry) {
  using namespace lrn_kernels;
  registry.add("lrn", lrn);
  registry.add("lrn_grad", lrn_grad);
}

}  // namespace millrace::kernels
