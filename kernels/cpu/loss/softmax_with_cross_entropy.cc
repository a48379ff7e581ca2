#include <algorithm>

#include "kernels/cpu/labels.h"
#include "kernels/cpu/lane_sum.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/nest.h"
#include "kernels/cpu/nn/adapted.h"
#include "kernels/cpu/sums.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Softmax and cross entropy in one pass over the logits. This avoids overflow and logarithms of
// probabilities that have become 0.
namespace millrace::kernels {
namespace softmax_with_cross_entropy_kernels {
namespace {

struct SoftmaxWithCrossEntropySettings {
  int64_t axis = -1;
  int64_t ignored = -100;
  bool soft = false;
  bool use_softmax = true;
};

SoftmaxWithCrossEntropySettings settings_of(const KernelSetup& op) {
  return {op.attr<int32_t>("axis"), op.attr<int32_t>("ignore_index"), op.attr<bool>("soft_label"),
          op.attr<bool>("use_softmax")};
}

// The classes of one example are `inner` elements apart.
struct SoftmaxWithCrossEntropyExtent {
  int64_t outer = 1;
  int64_t classes = 1;
  int64_t inner = 1;
};

StatusOr<SoftmaxWithCrossEntropyExtent> extent_of(const KernelContext& ctx, const Tensor& x,
                                                  int64_t axis) {
  const auto rank = static_cast<int64_t>(x.rank());
  if (axis < -rank || axis >= rank)
    return ctx.error("attribute 'axis' is {}, which is not an axis of {}", axis, describe(x));
  if (axis < 0) axis += rank;
  SoftmaxWithCrossEntropyExtent e;
  for (int64_t i = 0; i < rank; ++i) {
    int64_t& to = i < axis ? e.outer : (i == axis ? e.classes : e.inner);
    to *= x.dim(i);
  }
  return e;
}

// Pointers to one block of classes and to its labels.
template <typename T>
struct AxisBlock {
  const T* logits;
  T* softmax;
  T* loss;
  const T* soft;        // null for hard labels
  const int64_t* hard;  // null for soft labels
  T* sums;              // scratch, one element per column
};

template <typename T>
void softmax_row(const AxisBlock<T>& b, int64_t classes, int64_t ignored) {
  const T most =
      combine_lanes(b.logits, classes, b.logits[0], [](T x, T y) { return x > y ? x : y; });
  T* const softmax = b.softmax;
  const T* const x = b.logits;
  // Logits may share memory with Softmax, so the loss reads them first.
  T loss = 0;
  if (b.soft != nullptr) {
    loss = lane_sum<T>(classes, [&](int64_t c) { return b.soft[c] * (most - x[c]); });
  } else if (*b.hard != ignored) {
    loss = most - x[*b.hard];
  }
  for (int64_t c = 0; c < classes; ++c) softmax[c] = vmath::exp(x[c] - most);
  const T sum = sum_of(softmax, classes);
  const T inverse = 1 / sum;
  for (int64_t c = 0; c < classes; ++c) softmax[c] *= inverse;
  if (b.soft != nullptr) {
    *b.loss = loss + vmath::log(sum) * sum_of(b.soft, classes);
  } else {
    *b.loss = *b.hard == ignored ? T(0) : loss + vmath::log(sum);
  }
}

// The classes are in an inner dim: all columns are processed together, so that loops run over
// contiguous elements.
template <typename T>
void softmax_columns(const AxisBlock<T>& b, int64_t classes, int64_t inner, int64_t ignored) {
  T* const most = b.sums;
  T* const sums = b.sums + inner;
  std::copy_n(b.logits, inner, most);
  for (int64_t c = 1; c < classes; ++c) {
    const T* const x = b.logits + c * inner;
    for (int64_t k = 0; k < inner; ++k) most[k] = x[k] > most[k] ? x[k] : most[k];
  }
  std::fill_n(b.loss, inner, T(0));
  for (int64_t c = 0; c < classes; ++c) {
    const T* const x = b.logits + c * inner;
    if (b.soft != nullptr) {
      for (int64_t k = 0; k < inner; ++k) b.loss[k] += b.soft[c * inner + k] * (most[k] - x[k]);
    } else {
      for (int64_t k = 0; k < inner; ++k) b.loss[k] += b.hard[k] == c ? most[k] - x[k] : T(0);
    }
  }
  std::fill_n(sums, inner, T(0));
  for (int64_t c = 0; c < classes; ++c) {
    const T* const x = b.logits + c * inner;
    T* const y = b.softmax + c * inner;
    for (int64_t k = 0; k < inner; ++k) {
      y[k] = vmath::exp(x[k] - most[k]);
      sums[k] += y[k];
    }
  }
  for (int64_t k = 0; k < inner; ++k) most[k] = b.soft == nullptr && b.hard[k] != ignored;
  for (int64_t c = 0; c < classes; ++c) {
    T* const y = b.softmax + c * inner;
    for (int64_t k = 0; k < inner; ++k) y[k] /= sums[k];
    if (b.soft == nullptr) continue;
    for (int64_t k = 0; k < inner; ++k) most[k] += b.soft[c * inner + k];
  }
  // now `most` has the total weight of each example
  for (int64_t k = 0; k < inner; ++k)
    b.loss[k] =
        most[k] == 0 && b.soft == nullptr ? T(0) : b.loss[k] + most[k] * vmath::log(sums[k]);
}

// The logits are already probabilities.
template <typename T>
void plain_columns(const AxisBlock<T>& b, int64_t classes, int64_t inner, int64_t ignored) {
  if (b.softmax != b.logits) std::copy_n(b.logits, classes * inner, b.softmax);
  for (int64_t k = 0; k < inner; ++k) {
    T loss = 0;
    if (b.soft == nullptr) {
      if (b.hard[k] != ignored) loss = -vmath::log(b.logits[b.hard[k] * inner + k]);
    } else {
      for (int64_t c = 0; c < classes; ++c)
        loss -= b.soft[c * inner + k] * vmath::log(b.logits[c * inner + k]);
    }
    b.loss[k] = loss;
  }
}

template <typename T>
void run_block(const AxisBlock<T>& b, const SoftmaxWithCrossEntropyExtent& e,
               const SoftmaxWithCrossEntropySettings& s) {
  if (!s.use_softmax) return plain_columns(b, e.classes, e.inner, s.ignored);
  if (e.inner == 1) return softmax_row(b, e.classes, s.ignored);
  softmax_columns(b, e.classes, e.inner, s.ignored);
}

// Gradient of one block. If this op computes softmax: softmax - label, times dloss.
template <typename T>
void grad_block(const T* y, const T* soft, const int64_t* hard, const T* dloss, T* dlogits,
                const SoftmaxWithCrossEntropyExtent& e, const SoftmaxWithCrossEntropySettings& s) {
  for (int64_t c = 0; c < e.classes; ++c) {
    for (int64_t k = 0; k < e.inner; ++k) {
      const int64_t i = c * e.inner + k;
      if (!s.use_softmax) {
        const T label = soft != nullptr ? soft[i] : T(hard[k] == c);
        const bool counts = label != 0 && (soft != nullptr || hard[k] != s.ignored);
        dlogits[i] = counts ? -label / y[i] * dloss[k] : T(0);
      } else if (soft != nullptr) {
        dlogits[i] = (y[i] - soft[i]) * dloss[k];
      } else {
        dlogits[i] = hard[k] == s.ignored ? T(0) : (y[i] - T(hard[k] == c)) * dloss[k];
      }
    }
  }
}
// The common case.
template <typename T>
void grad_row(const T* y, int64_t label, T dloss, T* dlogits, int64_t classes) {
  for (int64_t c = 0; c < classes; ++c) dlogits[c] = y[c] * dloss;
  dlogits[label] -= dloss;
}

struct Labels {
  const Tensor* soft = nullptr;
  const int64_t* hard = nullptr;
};

StatusOr<Labels> labels_of(const KernelContext& ctx, const Tensor& label, const Tensor& x,
                           const SoftmaxWithCrossEntropyExtent& e,
                           const SoftmaxWithCrossEntropySettings& s) {
  Labels labels;
  if (!s.soft) {
    MILLRACE_ASSIGN_OR_RETURN(labels.hard,
                              class_labels(ctx, label, e.outer * e.inner, e.classes, s.ignored, 0));
    return labels;
  }
  if (label.numel() != x.numel() || label.dtype() != x.dtype()) {
    return ctx.error("soft labels must match {}, found {}", describe(x), describe(label));
  }
  labels.soft = &label;
  return labels;
}

template <typename T>
AxisBlock<T> block_at(int64_t o, const SoftmaxWithCrossEntropyExtent& e, const Labels& labels,
                      const T* logits, T* softmax, T* loss) {
  const int64_t at = o * e.classes * e.inner;
  return {logits + at,
          softmax + at,
          loss + o * e.inner,
          labels.soft == nullptr ? nullptr : labels.soft->data<T>() + at,
          labels.hard == nullptr ? nullptr : labels.hard + o * e.inner,
          nullptr};
}

int64_t outer_grain(const SoftmaxWithCrossEntropyExtent& e) {
  return std::max<int64_t>(1, kGrain / 8 / std::max<int64_t>(1, e.classes * e.inner));
}

template <typename T>
Status forward(const KernelContext& ctx, const Tensor& x, Tensor& softmax, Tensor& loss,
               const Labels& labels, const SoftmaxWithCrossEntropyExtent& e,
               const SoftmaxWithCrossEntropySettings& s) {
  // one scratch row for each example being processed
  MILLRACE_ASSIGN_OR_RETURN(
      std::byte* const scratch,
      ctx.device().scratch(
          e.inner == 1 ? 0 : static_cast<size_t>(e.outer * e.inner * 2) * sizeof(T), 1));
  ctx.device().parallel_for(e.outer, outer_grain(e), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      AxisBlock<T> block = block_at(o, e, labels, x.data<T>(), softmax.data<T>(), loss.data<T>());
      block.sums = reinterpret_cast<T*>(scratch) + o * e.inner * 2;
      run_block(block, e, s);
    }
  });
  return Ok();
}

StatusOr<Kernel> softmax_with_cross_entropy(const KernelSetup& op) {
  const ArgIndex logits = op.input("Logits");
  const ArgIndex label = op.input("Label");
  const ArgIndex softmax = op.output("Softmax");
  const ArgIndex loss = op.output("Loss");
  const SoftmaxWithCrossEntropySettings s = settings_of(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(logits);
    MILLRACE_ASSIGN_OR_RETURN(const SoftmaxWithCrossEntropyExtent e, extent_of(ctx, x, s.axis));
    MILLRACE_ASSIGN_OR_RETURN(const Labels labels, labels_of(ctx, ctx.in(label), x, e, s));
    if (x.numel() == 0) return Ok();
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) {
      return forward<typename decltype(tag)::type>(ctx, x, ctx.out(softmax), ctx.out(loss), labels,
                                                   e, s);
    });
  });
}

template <typename T>
void backward(const KernelContext& ctx, const Tensor& softmax, const Tensor& dloss, Tensor& dlogits,
              const Labels& labels, const SoftmaxWithCrossEntropyExtent& e,
              const SoftmaxWithCrossEntropySettings& s) {
  const T* const y = softmax.data<T>();
  const T* const dy = dloss.data<T>();
  T* const dx = dlogits.data<T>();
  ctx.device().parallel_for(e.outer, outer_grain(e), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const int64_t at = o * e.classes * e.inner;
      if (s.use_softmax && e.inner == 1 && labels.hard != nullptr && labels.hard[o] != s.ignored) {
        grad_row(y + at, labels.hard[o], dy[o], dx + at, e.classes);
        continue;
      }
      grad_block(y + at, labels.soft == nullptr ? nullptr : labels.soft->data<T>() + at,
                 labels.hard == nullptr ? nullptr : labels.hard + o * e.inner, dy + o * e.inner,
                 dx + at, e, s);
    }
  });
}

StatusOr<Kernel> softmax_with_cross_entropy_grad(const KernelSetup& op) {
  const ArgIndex label = op.input("Label");
  const ArgIndex softmax = op.input("Softmax");
  const ArgIndex dloss = op.input("Loss@GRAD");
  const ArgIndex dlogits = op.output("Logits@GRAD");
  const SoftmaxWithCrossEntropySettings s = settings_of(op);
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!dlogits) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const y, needed(ctx, softmax, "Softmax"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const to, needed(ctx, label, "Label"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dy, needed(ctx, dloss, "Loss@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const SoftmaxWithCrossEntropyExtent e, extent_of(ctx, *y, s.axis));
    if (dy->numel() != e.outer * e.inner || dy->dtype() != y->dtype())
      return ctx.error("Loss@GRAD must have one value per example, {}, found {}", e.outer * e.inner,
                       describe(*dy));
    MILLRACE_ASSIGN_OR_RETURN(const Labels labels, labels_of(ctx, *to, *y, e, s));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, result_like(ctx, dlogits, *y));
    return dispatch<FloatTypes>(y->dtype(), [&](auto tag) -> Status {
      backward<typename decltype(tag)::type>(ctx, *y, *dy, *dx, labels, e, s);
      return Ok();
    });
  });
}

}  // namespace
}  // namespace softmax_with_cross_entropy_kernels

void add_loss_softmax_with_cross_entropy(KernelRegistry& registry) {
  using namespace softmax_with_cross_entropy_kernels;
  registry.add("softmax_with_cross_entropy", in_float<softmax_with_cross_entropy>);
  registry.add("softmax_with_cross_entropy_grad", in_float<softmax_with_cross_entropy_grad>);
}

}  // namespace millrace::kernels
