#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/labels.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/sequence/row_spans.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Connectionist temporal classification: minus the logarithm of the probability of all alignments
// of the labels with the time steps. Computed with logarithms, because products over many time
// steps underflow.
namespace millrace::kernels {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

double log_add(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == kNever ? a : a + std::log1p(std::exp(b - a));
}

// Logits of one sequence: row t is at t * stride.
template <typename T>
struct Steps {
  const T* logits;
  int64_t stride;
  int64_t count;
  int64_t classes;
};

// The loss of one sequence, and its gradient if requested. Keeps its buffers between calls.
class Ctc {
 public:
  explicit Ctc(int64_t blank) : blank_(blank) {}

  template <typename T>
  double loss(const Steps<T>& steps, const int64_t* labels, int64_t label_count, T* grad);

 private:
  [[nodiscard]] double& at(std::vector<double>& table, int64_t t, int64_t s) const {
    return table[static_cast<size_t>(t * places_ + s)];
  }
  [[nodiscard]] int64_t label_at(int64_t s) const { return extended_[static_cast<size_t>(s)]; }
  /// True if an alignment may go from s - 2 to s: over a blank between two different labels.
  [[nodiscard]] bool may_skip(int64_t s) const {
    return s >= 2 && label_at(s) != blank_ && label_at(s) != label_at(s - 2);
  }
  template <typename T>
  void log_softmax(const Steps<T>& steps);
  void forward(int64_t steps);
  void backward(int64_t steps);

  int64_t blank_;
  int64_t places_ = 0;
  int64_t classes_ = 0;
  std::vector<int64_t> extended_;  // labels with blanks between and around them
  std::vector<double> log_probs_;
  std::vector<double> alpha_;
  std::vector<double> beta_;
  std::vector<double> shares_;
};

template <typename T>
void Ctc::log_softmax(const Steps<T>& steps) {
  log_probs_.resize(static_cast<size_t>(steps.count * steps.classes));
  for (int64_t t = 0; t < steps.count; ++t) {
    const T* const x = steps.logits + t * steps.stride;
    double* const y = log_probs_.data() + t * steps.classes;
    const double most = static_cast<double>(*std::max_element(x, x + steps.classes));
    double sum = 0;
    for (int64_t c = 0; c < steps.classes; ++c) sum += std::exp(static_cast<double>(x[c]) - most);
    const double shift = most + std::log(sum);
    // As in the original no probability is 0: the loss of an unlikely label stays finite.
    const double least = std::log(static_cast<double>(std::numeric_limits<T>::min()));
    for (int64_t c = 0; c < steps.classes; ++c)
      y[c] = std::max(static_cast<double>(x[c]) - shift, least);
  }
}

void Ctc::forward(int64_t steps) {
  alpha_.assign(static_cast<size_t>(steps * places_), kNever);
  const auto prob = [&](int64_t t, int64_t s) {
    return log_probs_[static_cast<size_t>(t * classes_ + label_at(s))];
  };
  at(alpha_, 0, 0) = prob(0, 0);
  if (places_ > 1) at(alpha_, 0, 1) = prob(0, 1);
  for (int64_t t = 1; t < steps; ++t) {
    for (int64_t s = 0; s < places_; ++s) {
      double sum = at(alpha_, t - 1, s);
      if (s >= 1) sum = log_add(sum, at(alpha_, t - 1, s - 1));
      if (may_skip(s)) sum = log_add(sum, at(alpha_, t - 1, s - 2));
      at(alpha_, t, s) = sum == kNever ? kNever : sum + prob(t, s);
    }
  }
}

// beta excludes the probability of the time step itself.
void Ctc::backward(int64_t steps) {
  beta_.assign(static_cast<size_t>(steps * places_), kNever);
  const auto next = [&](int64_t t, int64_t s) {
    const double later = at(beta_, t, s);
    return later == kNever ? kNever
                           : later + log_probs_[static_cast<size_t>(t * classes_ + label_at(s))];
  };
  at(beta_, steps - 1, places_ - 1) = 0;
  if (places_ > 1) at(beta_, steps - 1, places_ - 2) = 0;
  for (int64_t t = steps - 2; t >= 0; --t) {
    for (int64_t s = 0; s < places_; ++s) {
      double sum = next(t + 1, s);
      if (s + 1 < places_) sum = log_add(sum, next(t + 1, s + 1));
      if (s + 2 < places_ && may_skip(s + 2)) sum = log_add(sum, next(t + 1, s + 2));
      at(beta_, t, s) = sum;
    }
  }
}

template <typename T>
double Ctc::loss(const Steps<T>& steps, const int64_t* labels, int64_t label_count, T* grad) {
  if (grad != nullptr) {
    for (int64_t t = 0; t < steps.count; ++t)
      std::fill_n(grad + t * steps.stride, steps.classes, T(0));
  }
  if (steps.count == 0) return 0;
  classes_ = steps.classes;
  places_ = 2 * label_count + 1;
  extended_.assign(static_cast<size_t>(places_), blank_);
  for (int64_t k = 0; k < label_count; ++k) extended_[static_cast<size_t>(2 * k + 1)] = labels[k];
  log_softmax(steps);
  forward(steps.count);
  double total = at(alpha_, steps.count - 1, places_ - 1);
  if (places_ > 1) total = log_add(total, at(alpha_, steps.count - 1, places_ - 2));
  if (total == kNever)
    return 0;  // fewer time steps than the labels need: no loss, as in the original
  if (grad == nullptr) return -total;
  backward(steps.count);
  shares_.resize(static_cast<size_t>(classes_));
  for (int64_t t = 0; t < steps.count; ++t) {
    std::fill(shares_.begin(), shares_.end(), 0.0);
    for (int64_t s = 0; s < places_; ++s)
      shares_[static_cast<size_t>(label_at(s))] +=
          std::exp(at(alpha_, t, s) + at(beta_, t, s) - total);
    T* const to = grad + t * steps.stride;
    for (int64_t c = 0; c < classes_; ++c) {
      const auto k = static_cast<size_t>(c);
      to[c] =
          static_cast<T>(std::exp(log_probs_[static_cast<size_t>(t * classes_ + c)]) - shares_[k]);
    }
  }
  return -total;
}

struct WarpctcSlots {
  ArgIndex logits;
  ArgIndex label;
  ArgIndex logits_lengths;
  ArgIndex label_lengths;
};

// Positions of the sequences in Logits; padded logits are [length, batch, classes].
struct WarpctcLayout {
  int64_t classes = 0;
  std::vector<RowSpan> logits;  ///< first row and number of time steps
  int64_t stride = 0;           ///< elements between time steps
  std::vector<RowSpan> labels;
};

StatusOr<std::vector<RowSpan>> padded_spans(const KernelContext& ctx, const Tensor& logits,
                                            const Tensor& lengths) {
  const int64_t batch = logits.dim(1);
  if (lengths.numel() != batch)
    return ctx.error("LogitsLength must have {} elements, found {}", batch, describe(lengths));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t* const length, integers_of(ctx, lengths, 2));
  std::vector<RowSpan> spans;
  for (int64_t b = 0; b < batch; ++b) {
    if (length[b] < 0 || length[b] > logits.dim(0))
      return ctx.error("length {} of Logits is {}, expected one in [0, {}]", b, length[b],
                       logits.dim(0));
    spans.push_back({b, length[b]});
  }
  return spans;
}

StatusOr<WarpctcLayout> layout_of_logits(const KernelContext& ctx, const Tensor& logits,
                                         const Tensor* lengths) {
  WarpctcLayout layout;
  if (logits.rank() != (lengths == nullptr ? 2U : 3U))
    return ctx.error("Logits must have rank {}, found {}", lengths == nullptr ? 2 : 3,
                     describe(logits));
  layout.classes = logits.dim(-1);
  layout.stride = layout.classes * (lengths == nullptr ? 1 : logits.dim(1));
  if (lengths == nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(layout.logits,
                              spans_of(ctx, logits, "Logits", nullptr, 0, SpanLevel::kOutermost));
  } else {
    MILLRACE_ASSIGN_OR_RETURN(layout.logits, padded_spans(ctx, logits, *lengths));
  }
  return layout;
}

StatusOr<Kernel> warpctc(const KernelSetup& op) {
  const WarpctcSlots slots{op.input("Logits"), op.input("Label"), op.input("LogitsLength"),
                           op.input("LabelLength")};
  const ArgIndex loss = op.output("Loss");
  const ArgIndex grad = op.output("WarpCTCGrad");
  auto ctc = std::make_shared<Ctc>(op.attr<int32_t>("blank"));
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& logits = ctx.in(slots.logits);
    const Tensor& label = ctx.in(slots.label);
    MILLRACE_ASSIGN_OR_RETURN(WarpctcLayout layout,
                              layout_of_logits(ctx, logits, ctx.find_in(slots.logits_lengths)));
    MILLRACE_ASSIGN_OR_RETURN(layout.labels,
                              spans_of(ctx, label, "Label", ctx.find_in(slots.label_lengths),
                                       label.rank() > 1 ? label.dim(1) : 1, SpanLevel::kOutermost));
    if (layout.labels.size() != layout.logits.size())
      return ctx.error("Logits and Label must have the same number of sequences, found {} and {}",
                       layout.logits.size(), layout.labels.size());
    // classes after the end of a row are never read, so they need not be valid
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const labels, integers_of(ctx, label, 0));
    for (const RowSpan& span : layout.labels) {
      for (int64_t i = span.begin; i < span.begin + span.count; ++i) {
        if (labels[i] < 0 || labels[i] >= layout.classes)
          return ctx.error("label {} is {}, expected a class in [0, {})", i, labels[i],
                           layout.classes);
      }
    }
    return dispatch<FloatTypes>(logits.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      Tensor* const slopes = ctx.find_out(grad);
      if (slopes != nullptr) std::fill_n(slopes->data<T>(), slopes->numel(), T(0));
      for (size_t i = 0; i < layout.logits.size(); ++i) {
        const int64_t at = layout.logits[i].begin * layout.classes;
        const Steps<T> steps{logits.data<T>() + at, layout.stride, layout.logits[i].count,
                             layout.classes};
        ctx.out(loss).data<T>()[i] =
            static_cast<T>(ctc->loss(steps, labels + layout.labels[i].begin, layout.labels[i].count,
                                     slopes == nullptr ? nullptr : slopes->data<T>() + at));
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> warpctc_grad(const KernelSetup& op) {
  const ArgIndex logits = op.input("Logits");
  const ArgIndex lengths = op.input("LogitsLength");
  const ArgIndex grad = op.input("WarpCTCGrad");
  const ArgIndex dloss = op.input("Loss@GRAD");
  const ArgIndex dlogits = op.output("Logits@GRAD");
  const bool by_steps = op.attr<bool>("norm_by_times");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!dlogits) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, logits, "Logits"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const slopes, needed(ctx, grad, "WarpCTCGrad"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, dloss, "Loss@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const WarpctcLayout layout,
                              layout_of_logits(ctx, *x, ctx.find_in(lengths)));
    if (slopes->numel() != x->numel() || slopes->dtype() != x->dtype() ||
        d->numel() != static_cast<int64_t>(layout.logits.size()) || d->dtype() != x->dtype())
      return ctx.error("WarpCTCGrad must match Logits {}, and Loss@GRAD have {} elements",
                       describe(*x), layout.logits.size());
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, dlogits, *x));
    return dispatch<FloatTypes>(x->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      std::fill_n(to->data<T>(), to->numel(), T(0));
      for (size_t i = 0; i < layout.logits.size(); ++i) {
        const RowSpan& span = layout.logits[i];
        const T scale =
            d->data<T>()[i] / (by_steps ? static_cast<T>(std::max<int64_t>(span.count, 1)) : T(1));
        for (int64_t t = 0; t < span.count; ++t) {
          const int64_t at = span.begin * layout.classes + t * layout.stride;
          for (int64_t c = 0; c < layout.classes; ++c)
            to->data<T>()[at + c] = slopes->data<T>()[at + c] * scale;
        }
      }
      return Ok();
    });
  });
}

}  // namespace

void add_sequence_warpctc(KernelRegistry& registry) {
  registry.add("warpctc", warpctc);
  registry.add("warpctc_grad", warpctc_grad);
}

}  // namespace millrace::kernels
