#include <algorithm>
#include <cmath>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/nest.h"
#include "kernels/cpu/sums.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace sigmoid_cross_entropy {
namespace {

struct SigmoidCrossEntropySettings {
  double ignored = -100;
  bool normalize = false;
};

struct Arguments {
  const Tensor* x = nullptr;
  const Tensor* label = nullptr;
  const Tensor* weight = nullptr;  // optional
  const Tensor* dout = nullptr;    // of the gradient op
};

// Loss and gradient of one element, before ignored labels are handled. A weight scales the
// logarithm only; the gradient with a weight is that of the original, which trained models rely on.
template <typename T>
T loss_of(T x, T label, T weight) {
  const T tail = vmath::log1p_unit(vmath::exp(x > T(0) ? -x : x));
  return (x > T(0) ? x : T(0)) - x * label + weight * tail;
}
template <typename T>
T slope_of(T x, T label, T weight) {
  return weight * vmath::sigmoid(x) - label;
}

template <typename T>
bool counts(T label, T ignored) {
  return std::abs(label - ignored) > T(1e-5);
}

// The divisor of the results.
template <typename T>
T divisor(const T* label, int64_t count, const SigmoidCrossEntropySettings& s) {
  if (!s.normalize) return 1;
  const T ignored = static_cast<T>(s.ignored);
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) found += counts(label[i], ignored) ? 1 : 0;
  return found == 0 ? T(1e-5) : static_cast<T>(found);
}

template <typename T, bool kWeighted, bool kGrad>
void loop(const Arguments& a, const SigmoidCrossEntropySettings& s, Tensor& out,
          CpuDevice& device) {
  const T* const x = a.x->data<T>();
  const T* const label = a.label->data<T>();
  const T* const weight = kWeighted ? a.weight->data<T>() : nullptr;
  const T* const dout = kGrad ? a.dout->data<T>() : nullptr;
  T* const to = out.data<T>();
  const T ignored = static_cast<T>(s.ignored);
  const T scale = 1 / divisor(label, a.x->numel(), s);
  device.parallel_for(a.x->numel(), kGrain / 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T w = kWeighted ? weight[i] : T(1);
      const T value = kGrad ? slope_of(x[i], label[i], w) * dout[i] : loss_of(x[i], label[i], w);
      to[i] = counts(label[i], ignored) ? value * scale : T(0);
    }
  });
}

Status check(const KernelContext& ctx, const Arguments& a) {
  for (const Tensor* const other : {a.label, a.weight, a.dout}) {
    if (other == nullptr) continue;
    if (other->numel() != a.x->numel() || other->dtype() != a.x->dtype()) {
      return ctx.error("Label, pos_weight and gradient must match X {}, found {}", describe(*a.x),
                       describe(*other));
    }
  }
  return Ok();
}

template <bool kGrad>
StatusOr<Kernel> make(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex label = op.input("Label");
  const ArgIndex weight = op.input("pos_weight");
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex out = op.output(kGrad ? "X@GRAD" : "Out");
  const SigmoidCrossEntropySettings s{static_cast<double>(op.attr<int32_t>("ignore_index")),
                                      op.attr<bool>("normalize")};
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!out) return Ok();
    Arguments a;
    MILLRACE_ASSIGN_OR_RETURN(a.x, needed(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(a.label, needed(ctx, label, "Label"));
    a.weight = ctx.find_in(weight);
    if (kGrad) {
      MILLRACE_ASSIGN_OR_RETURN(a.dout, needed(ctx, dout, "Out@GRAD"));
    }
    MILLRACE_RETURN_IF_ERROR(check(ctx, a));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, out, *a.x));
    return dispatch<FloatTypes>(a.x->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      a.weight != nullptr ? loop<T, true, kGrad>(a, s, *to, ctx.device())
                          : loop<T, false, kGrad>(a, s, *to, ctx.device());
      return Ok();
    });
  });
}

}  // namespace
}  // namespace sigmoid_cross_entropy

void add_loss_sigmoid_cross_entropy(KernelRegistry& registry) {
  using namespace sigmoid_cross_entropy;
  registry.add("sigmoid_cross_entropy_with_logits", make<false>);
  registry.add("sigmoid_cross_entropy_with_logits_grad", make<true>);
}

}  // namespace millrace::kernels
