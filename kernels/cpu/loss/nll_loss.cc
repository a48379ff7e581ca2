#include <algorithm>
#include <string>

#include "kernels/cpu/labels.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace nll_loss_kernels {
namespace {

enum class Reduction { kNone, kMean, kSum };

Reduction reduction_of(const KernelSetup& op) {
  const auto name = op.attr<std::string>("reduction");
  if (name == "mean") return Reduction::kMean;
  return name == "sum" ? Reduction::kSum : Reduction::kNone;
}

// X is [outer, classes, inner], Label [outer, inner].
struct NllLossProblem {
  int64_t outer = 0;
  int64_t classes = 0;
  int64_t inner = 1;
  const int64_t* labels = nullptr;
  const Tensor* weight = nullptr;  // optional
  int64_t ignored = -100;

  [[nodiscard]] int64_t examples() const { return outer * inner; }
  template <typename T>
  [[nodiscard]] T weight_of(int64_t label) const {
    if (label == ignored) return T(0);
    return weight == nullptr ? T(1) : weight->data<T>()[label];
  }
  /// Index in X of the label's class of example i.
  [[nodiscard]] int64_t place(int64_t i) const {
    return (i / inner * classes + labels[i]) * inner + i % inner;
  }
};

struct NllLossSlots {
  ArgIndex x;
  ArgIndex label;
  ArgIndex weight;
  int64_t ignored = -100;
};
NllLossSlots slots_of(const KernelSetup& op) {
  return {op.input("X"), op.input("Label"), op.input("Weight"), op.attr<int64_t>("ignore_index")};
}

StatusOr<NllLossProblem> problem_of(const KernelContext& ctx, const NllLossSlots& slots) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, slots.x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const label, needed(ctx, slots.label, "Label"));
  if (x->rank() < 2) return ctx.error("X must have rows and classes, found {}", describe(*x));
  NllLossProblem p;
  p.outer = x->dim(0);
  p.classes = x->dim(1);
  for (size_t i = 2; i < x->rank(); ++i) p.inner *= x->dims()[i];
  p.ignored = slots.ignored;
  p.weight = ctx.find_in(slots.weight);
  if (p.weight != nullptr && (p.weight->numel() != p.classes || p.weight->dtype() != x->dtype())) {
    return ctx.error("Weight must have one value per class of X {}, found {}", describe(*x),
                     describe(*p.weight));
  }
  MILLRACE_ASSIGN_OR_RETURN(p.labels,
                            class_labels(ctx, *label, p.examples(), p.classes, slots.ignored, 0));
  return p;
}

template <typename T>
void forward(const NllLossProblem& p, Reduction reduction, const Tensor& x, Tensor& out,
             Tensor* total) {
  T losses = 0;
  T weights = 0;
  for (int64_t i = 0; i < p.examples(); ++i) {
    const T weight = p.weight_of<T>(p.labels[i]);
    const T loss = p.labels[i] == p.ignored ? T(0) : -x.data<T>()[p.place(i)] * weight;
    if (reduction == Reduction::kNone) out.data<T>()[i] = loss;
    losses += loss;
    weights += weight;
  }
  if (reduction == Reduction::kMean) losses = weights == 0 ? T(0) : losses / weights;
  if (reduction != Reduction::kNone) *out.data<T>() = losses;
  if (total != nullptr) *total->data<T>() = reduction == Reduction::kNone ? T(0) : weights;
}

template <typename T>
void backward(const NllLossProblem& p, Reduction reduction, const Tensor& dout, Tensor& dx) {
  std::fill_n(dx.data<T>(), dx.numel(), T(0));
  T weights = 0;
  for (int64_t i = 0; i < p.examples(); ++i) weights += p.weight_of<T>(p.labels[i]);
  const T scale = reduction == Reduction::kMean && weights != 0 ? 1 / weights : T(1);
  for (int64_t i = 0; i < p.examples(); ++i) {
    if (p.labels[i] == p.ignored) continue;
    const T d = dout.data<T>()[reduction == Reduction::kNone ? i : 0];
    dx.data<T>()[p.place(i)] = -d * p.weight_of<T>(p.labels[i]) * scale;
  }
}

StatusOr<Kernel> nll_loss(const KernelSetup& op) {
  const NllLossSlots slots = slots_of(op);
  const ArgIndex out = op.output("Out");
  const ArgIndex total = op.output("Total_weight");
  const Reduction reduction = reduction_of(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const NllLossProblem p, problem_of(ctx, slots));
    return dispatch<FloatTypes>(ctx.in(slots.x).dtype(), [&](auto tag) -> Status {
      forward<typename decltype(tag)::type>(p, reduction, ctx.in(slots.x), ctx.out(out),
                                            ctx.find_out(total));
      return Ok();
    });
  });
}

StatusOr<Kernel> nll_loss_grad(const KernelSetup& op) {
  const NllLossSlots slots = slots_of(op);
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  const Reduction reduction = reduction_of(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!dx) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const NllLossProblem p, problem_of(ctx, slots));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, dout, "Out@GRAD"));
    const Tensor& x = ctx.in(slots.x);
    const int64_t wanted = reduction == Reduction::kNone ? p.examples() : 1;
    if (d->numel() != wanted || d->dtype() != x.dtype())
      return ctx.error("Out@GRAD must have {} elements, found {}", wanted, describe(*d));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, dx, x));
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
      backward<typename decltype(tag)::type>(p, reduction, *d, *to);
      return Ok();
    });
  });
}

}  // namespace
}  // namespace nll_loss_kernels

void add_loss_nll_loss(KernelRegistry& registry) {
  using namespace nll_loss_kernels;
  registry.add("nll_loss", nll_loss);
  registry.add("nll_loss_grad", nll_loss_grad);
}

}  // namespace millrace::kernels
