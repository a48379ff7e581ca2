#include <algorithm>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/labels.h"
#include "kernels/cpu/lane_sum.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/nest.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Cross entropy of probabilities; classes are in the last dim.
namespace millrace::kernels {
namespace cross_entropy_kernels {
namespace {

// The loss for a probability of 0, instead of infinity.
constexpr double kMostLoss = 1e20;

template <typename T>
T loss_of(T probability) {
  const T loss = -vmath::log(probability);
  return std::min(std::max(loss, T(-kMostLoss)), T(kMostLoss));
}

struct CrossEntropyRows {
  int64_t count = 0;
  int64_t classes = 1;
};
CrossEntropyRows rows_of(const Tensor& x) {
  const int64_t classes = x.rank() == 0 ? 1 : x.dim(-1);
  return {classes == 0 ? 0 : x.numel() / classes, classes};
}

Status check_rows(const KernelContext& ctx, const Tensor& tensor, const char* slot,
                  const Tensor& like, int64_t count) {
  if (tensor.numel() == count && tensor.dtype() == like.dtype()) return Ok();
  return ctx.error("{} must have {} elements of the type of {}, found {}", slot, count,
                   describe(like), describe(tensor));
}

// Calls body(probabilities, soft labels, row) for all rows; both have one element per class.
template <typename Body>
Status for_soft_rows(const Tensor& x, const Tensor& label, const CrossEntropyRows& rows,
                     Body&& body) {
  return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < rows.count; ++i)
      body(x.data<T>() + i * rows.classes, label.data<T>() + i * rows.classes, i);
    return Ok();
  });
}

Status soft_forward(const KernelContext& ctx, const Tensor& x, const Tensor& label, Tensor& y) {
  const CrossEntropyRows rows = rows_of(x);
  MILLRACE_RETURN_IF_ERROR(check_rows(ctx, label, "Label", x, x.numel()));
  return for_soft_rows(x, label, rows, [&]<typename T>(const T* p, const T* q, int64_t i) {
    y.data<T>()[i] = lane_sum<T>(rows.classes, [&](int64_t c) { return q[c] * loss_of(p[c]); });
  });
}

Status hard_forward(const KernelContext& ctx, const Tensor& x, const Tensor& label, int64_t ignored,
                    Tensor& y, Tensor* match) {
  const CrossEntropyRows rows = rows_of(x);
  MILLRACE_ASSIGN_OR_RETURN(const int64_t* const labels,
                            class_labels(ctx, label, rows.count, rows.classes, ignored, 0));
  return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < rows.count; ++i) {
      const bool counts = labels[i] != ignored;
      const T p = counts ? x.data<T>()[i * rows.classes + labels[i]] : T(0);
      y.data<T>()[i] = counts ? loss_of(p) : T(0);
      if (match != nullptr) match->data<T>()[i] = p;
    }
    return Ok();
  });
}

StatusOr<Kernel> cross_entropy(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex label = op.input("Label");
  const ArgIndex y = op.output("Y");
  const bool soft = op.attr<bool>("soft_label");
  const int64_t ignored = op.attr<int32_t>("ignore_index");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (soft) return soft_forward(ctx, ctx.in(x), ctx.in(label), ctx.out(y));
    return hard_forward(ctx, ctx.in(x), ctx.in(label), ignored, ctx.out(y), nullptr);
  });
}

StatusOr<Kernel> cross_entropy2(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex label = op.input("Label");
  const ArgIndex y = op.output("Y");
  const ArgIndex match = op.output("MatchX");
  const int64_t ignored = op.attr<int32_t>("ignore_index");
  return Kernel([=](const KernelContext& ctx) -> Status {
    return hard_forward(ctx, ctx.in(x), ctx.in(label), ignored, ctx.out(y), ctx.find_out(match));
  });
}

// With hard labels, each row has one non-zero gradient: that of the label's class, whose
// probability is match[i].
Status hard_backward(const KernelContext& ctx, const Tensor& label, const Tensor& dy,
                     int64_t ignored, Tensor& dx, const Tensor& match, bool match_is_x) {
  const CrossEntropyRows rows = rows_of(dx);
  MILLRACE_RETURN_IF_ERROR(check_rows(ctx, dy, "Y@GRAD", dx, rows.count));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t* const labels,
                            class_labels(ctx, label, rows.count, rows.classes, ignored, 0));
  return dispatch<FloatTypes>(dx.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    const T* const p = match.data<T>();
    T* const to = dx.data<T>();
    // X and its gradient may share memory, so the probability is read before the row is cleared
    for (int64_t i = 0; i < rows.count; ++i) {
      const int64_t at = i * rows.classes;
      const bool counts = labels[i] != ignored;
      const T probability = counts ? p[match_is_x ? at + labels[i] : i] : T(1);
      std::fill_n(to + at, rows.classes, T(0));
      if (counts) to[at + labels[i]] = -dy.data<T>()[i] / probability;
    }
    return Ok();
  });
}

Status soft_backward(const KernelContext& ctx, const Tensor& x, const Tensor& label,
                     const Tensor& dy, Tensor& dx) {
  const CrossEntropyRows rows = rows_of(x);
  MILLRACE_RETURN_IF_ERROR(check_rows(ctx, label, "Label", x, x.numel()));
  MILLRACE_RETURN_IF_ERROR(check_rows(ctx, dy, "Y@GRAD", x, rows.count));
  return for_soft_rows(x, label, rows, [&]<typename T>(const T* p, const T* q, int64_t i) {
    T* const to = dx.data<T>() + i * rows.classes;
    const T d = dy.data<T>()[i];
    for (int64_t c = 0; c < rows.classes; ++c) to[c] = -q[c] / p[c] * d;
  });
}

StatusOr<Kernel> cross_entropy_grad(const KernelSetup& op) {
  const ArgIndex label = op.input("Label");
  const GradientArgs gradient(op, "X", "Y");
  const bool soft = op.attr<bool>("soft_label");
  const int64_t ignored = op.attr<int32_t>("ignore_index");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GradientTensors g, gradient.required(ctx));
    if (!g) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const given, needed(ctx, label, "Label"));
    if (soft) return soft_backward(ctx, *g.x, *given, *g.from, *g.to);
    return hard_backward(ctx, *given, *g.from, ignored, *g.to, *g.x, /*match_is_x=*/true);
  });
}

StatusOr<Kernel> cross_entropy_grad2(const KernelSetup& op) {
  const ArgIndex match = op.input("MatchX");
  const ArgIndex label = op.input("Label");
  const ArgIndex dy = op.input("Y@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  const int64_t ignored = op.attr<int32_t>("ignore_index");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!dx) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const p, needed(ctx, match, "MatchX"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const to, needed(ctx, label, "Label"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dloss, needed(ctx, dy, "Y@GRAD"));
    Tensor& out = ctx.out(dx);
    if (!out.initialized() || out.dtype() != p->dtype())
      return ctx.error("XShape must hold the shape of X, found {}", describe(out));
    MILLRACE_RETURN_IF_ERROR(check_rows(ctx, *p, "MatchX", out, rows_of(out).count));
    return hard_backward(ctx, *to, *dloss, ignored, out, *p, /*match_is_x=*/false);
  });
}

// Every other class is paired with the label's class: log(1 + exp(x[c] - x[label])), averaged.
StatusOr<Kernel> bpr_loss(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex label = op.input("Label");
  const ArgIndex y = op.output("Y");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    const CrossEntropyRows rows = rows_of(from);
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const labels,
                              class_labels(ctx, ctx.in(label), rows.count, rows.classes, 0, 0));
    return dispatch<FloatTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < rows.count; ++i) {
        const T* const p = from.data<T>() + i * rows.classes;
        const T right = p[labels[i]];
        const T sum = lane_sum<T>(rows.classes, [&](int64_t c) {
          return c == labels[i] ? T(0) : vmath::softplus(p[c] - right);
        });
        ctx.out(y).data<T>()[i] = sum / static_cast<T>(std::max<int64_t>(rows.classes - 1, 1));
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> bpr_loss_grad(const KernelSetup& op) {
  const ArgIndex label = op.input("Label");
  const GradientArgs gradient(op, "X", "Y");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const GradientTensors g, gradient.required(ctx));
    if (!g) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const given, needed(ctx, label, "Label"));
    const CrossEntropyRows rows = rows_of(*g.x);
    MILLRACE_RETURN_IF_ERROR(check_rows(ctx, *g.from, "Y@GRAD", *g.x, rows.count));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const labels,
                              class_labels(ctx, *given, rows.count, rows.classes, 0, 0));
    return dispatch<FloatTypes>(g.x->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < rows.count; ++i) {
        const T* const p = g.x->data<T>() + i * rows.classes;
        T* const d = g.to->data<T>() + i * rows.classes;
        const T right = p[labels[i]];
        const T each =
            g.from->data<T>()[i] / static_cast<T>(std::max<int64_t>(rows.classes - 1, 1));
        T sum = 0;
        for (int64_t c = 0; c < rows.classes; ++c) {
          d[c] = c == labels[i] ? T(0) : vmath::sigmoid(p[c] - right) * each;
          sum += d[c];
        }
        d[labels[i]] = -sum;
      }
      return Ok();
    });
  });
}

}  // namespace
}  // namespace cross_entropy_kernels

void add_loss_cross_entropy(KernelRegistry& registry) {
  using namespace cross_entropy_kernels;
  registry.add("cross_entropy", cross_entropy);
  registry.add("cross_entropy_grad", cross_entropy_grad);
  registry.add("cross_entropy2", cross_entropy2);
  registry.add("cross_entropy_grad2", cross_entropy_grad2);
  registry.add("bpr_loss", bpr_loss);
  registry.add("bpr_loss_grad", bpr_loss_grad);
}

}  // namespace millrace::kernels
