#include <algorithm>
#include <cmath>

#include "kernels/cpu/labels.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/sequence/row_spans.h"
#include "kernels/cpu/workspace.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Linear-chain conditional random fields by the forward and backward algorithms. Sums over tag
// sequences are stored as fractions of 1, with the logarithm stored separately, to avoid overflow.
namespace millrace::kernels {
namespace crf {
namespace {

struct CrfInputs {
  const Tensor* emission = nullptr;
  const Tensor* transition = nullptr;
  const Tensor* lengths = nullptr;  // optional
  int64_t rows = 0;
  int64_t tags = 0;
  std::vector<RowSpan> spans;
};

StatusOr<CrfInputs> crf_inputs(const KernelContext& ctx, ArgIndex emission, ArgIndex transition,
                               ArgIndex lengths) {
  CrfInputs in;
  MILLRACE_ASSIGN_OR_RETURN(in.emission, needed(ctx, emission, "Emission"));
  MILLRACE_ASSIGN_OR_RETURN(in.transition, needed(ctx, transition, "Transition"));
  in.lengths = ctx.find_in(lengths);
  const Tensor& x = *in.emission;
  if (x.rank() != (in.lengths == nullptr ? 2U : 3U))
    return ctx.error("Emission must have rank {}, found {}", in.lengths == nullptr ? 2 : 3,
                     describe(x));
  in.tags = x.dim(-1);
  if (in.tags < 1) return ctx.error("Emission must have a tag at least, found {}", describe(x));
  in.rows = x.numel() / in.tags;
  if (in.transition->numel() != (in.tags + 2) * in.tags || in.transition->dtype() != x.dtype())
    return ctx.error("Transition must be [{}, {}] for Emission {}, found {}", in.tags + 2, in.tags,
                     describe(x), describe(*in.transition));
  MILLRACE_ASSIGN_OR_RETURN(in.spans,
                            spans_of(ctx, x, "Emission", in.lengths, x.rank() == 3 ? x.dim(1) : 0));
  return in;
}

template <typename T>
T normalize(T* x, int64_t count) {
  T sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += x[i];
  for (int64_t i = 0; i < count; ++i) x[i] /= sum;
  return sum;
}

// Scores and their exponentials; for emissions, the largest score of the row is subtracted first.
template <typename T>
struct Scores {
  int64_t tags;
  const T* emission;
  const T* transition;
  const T* emission_exps;
  const T* transition_exps;

  [[nodiscard]] const T* start() const { return transition_exps; }
  [[nodiscard]] const T* end() const { return transition_exps + tags; }
  [[nodiscard]] const T* from(int64_t tag) const { return transition_exps + (tag + 2) * tags; }
};

template <typename T>
T forward(const Scores<T>& s, const int64_t* labels, int64_t rows, T* exps, T* alpha) {
  const int64_t tags = s.tags;
  T log_sum = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const T* const x = s.emission + r * tags;
    T* const e = exps + r * tags;
    T* const a = alpha + r * tags;
    const T most = *std::max_element(x, x + tags);
    for (int64_t i = 0; i < tags; ++i) e[i] = std::exp(x[i] - most);
    if (r == 0) {
      for (int64_t i = 0; i < tags; ++i) a[i] = s.start()[i] * e[i];
    } else {
      std::fill_n(a, tags, T(0));
      const T* const before = a - tags;
      for (int64_t j = 0; j < tags; ++j) {
        const T* const to = s.from(j);
        for (int64_t i = 0; i < tags; ++i) a[i] += before[j] * to[i];
      }
      for (int64_t i = 0; i < tags; ++i) a[i] *= e[i];
    }
    log_sum += most + std::log(normalize(a, tags));
  }
  T last = 0;
  for (int64_t i = 0; i < tags; ++i) last += alpha[(rows - 1) * tags + i] * s.end()[i];
  log_sum += std::log(last);
  // the score of the labels
  T score = s.transition[labels[0]] + s.transition[tags + labels[rows - 1]];
  for (int64_t r = 0; r < rows; ++r) score += s.emission[r * tags + labels[r]];
  for (int64_t r = 1; r < rows; ++r) score += s.transition[(labels[r - 1] + 2) * tags + labels[r]];
  return log_sum - score;
}

struct CrfOutputs {
  Tensor* loss;
  Tensor* alpha;  // optional, like the following ones
  Tensor* emission_exps;
  Tensor* transition_exps;
};

template <typename T>
Status run(const CrfInputs& in, const int64_t* labels, const CrfOutputs& out, Workspace& work) {
  const int64_t count = in.rows * in.tags;
  MILLRACE_ASSIGN_OR_RETURN(T* const alpha, work.output_or_take<T>(out.alpha, 0, count));
  MILLRACE_ASSIGN_OR_RETURN(T* const exps, work.output_or_take<T>(out.emission_exps, 1, count));
  MILLRACE_ASSIGN_OR_RETURN(
      T* const steps, work.output_or_take<T>(out.transition_exps, 2, (in.tags + 2) * in.tags));
  const T* const transition = in.transition->data<T>();
  for (int64_t i = 0; i < (in.tags + 2) * in.tags; ++i) steps[i] = std::exp(transition[i]);
  if (in.lengths != nullptr) {
    std::fill_n(alpha, count, T(0));
    std::fill_n(exps, count, T(1));
  }
  for (size_t i = 0; i < in.spans.size(); ++i) {
    const RowSpan& span = in.spans[i];
    const int64_t at = span.begin * in.tags;
    const Scores<T> scores{in.tags, in.emission->data<T>() + at, transition, exps + at, steps};
    out.loss->data<T>()[i] =
        span.count == 0 ? T(0)
                        : forward(scores, labels + span.begin, span.count, exps + at, alpha + at);
  }
  return Ok();
}

StatusOr<Kernel> linear_chain_crf(const KernelSetup& op) {
  const ArgIndex emission = op.input("Emission");
  const ArgIndex transition = op.input("Transition");
  const ArgIndex label = op.input("Label");
  const ArgIndex lengths = op.input("Length");
  const ArgIndex loss = op.output("LogLikelihood");
  const ArgIndex alpha = op.output("Alpha");
  const ArgIndex emission_exps = op.output("EmissionExps");
  const ArgIndex transition_exps = op.output("TransitionExps");
  auto work = std::make_shared<Workspace>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const CrfInputs in, crf_inputs(ctx, emission, transition, lengths));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const labels,
                              class_labels(ctx, ctx.in(label), in.rows, in.tags, 0, 0));
    const CrfOutputs out{&ctx.out(loss), ctx.find_out(alpha), ctx.find_out(emission_exps),
                         ctx.find_out(transition_exps)};
    return dispatch<FloatTypes>(in.emission->dtype(), [&](auto tag) {
      return run<typename decltype(tag)::type>(in, labels, out, *work);
    });
  });
}

// Adds the gradient of one sequence, times dloss. beta has 2 * tags elements.
template <typename T>
void backward(const Scores<T>& s, const int64_t* labels, int64_t rows, const T* alpha, T dloss,
              T* demission, T* dtransition, T* beta) {
  const int64_t tags = s.tags;
  T* weighted = beta + tags;  // exponentials of the emissions of a row times its beta
  std::copy_n(s.end(), tags, beta);
  for (int64_t r = rows - 1; r >= 0; --r) {
    const T* const a = alpha + r * tags;
    T sum = 0;
    for (int64_t i = 0; i < tags; ++i) sum += a[i] * beta[i];
    T* const d = demission + r * tags;
    for (int64_t i = 0; i < tags; ++i) d[i] = a[i] * beta[i] / sum * dloss;
    d[labels[r]] -= dloss;
    if (dtransition != nullptr && r == 0) {
      for (int64_t i = 0; i < tags; ++i) dtransition[i] += d[i];
    }
    if (dtransition != nullptr && r == rows - 1) {
      for (int64_t i = 0; i < tags; ++i) dtransition[tags + i] += d[i];
    }
    if (r == 0) return;
    const T* const before = a - tags;
    const T* const e = s.emission_exps + r * tags;
    for (int64_t i = 0; i < tags; ++i) weighted[i] = e[i] * beta[i];
    T total = 0;
    for (int64_t j = 0; j < tags; ++j) {
      T reach = 0;
      for (int64_t i = 0; i < tags; ++i) reach += s.from(j)[i] * weighted[i];
      beta[j] = reach;
      total += before[j] * reach;
    }
    if (dtransition != nullptr) {
      for (int64_t j = 0; j < tags; ++j) {
        const T share = before[j] / total * dloss;
        T* const to = dtransition + (j + 2) * tags;
        for (int64_t i = 0; i < tags; ++i) to[i] += share * s.from(j)[i] * weighted[i];
      }
      dtransition[(labels[r - 1] + 2) * tags + labels[r]] -= dloss;
    }
    normalize(beta, tags);
  }
}

struct CrfGradSlots {
  ArgIndex alpha;
  ArgIndex emission_exps;
  ArgIndex transition_exps;
  ArgIndex dloss;
  ArgIndex demission;
  ArgIndex dtransition;
};

struct CrfGradTensors {
  const Tensor* alpha = nullptr;
  const Tensor* emission_exps = nullptr;
  const Tensor* transition_exps = nullptr;
  const Tensor* dloss = nullptr;
  Tensor* demission = nullptr;
  Tensor* dtransition = nullptr;
};

StatusOr<CrfGradTensors> grad_tensors(const KernelContext& ctx, const CrfGradSlots& slots,
                                      const CrfInputs& in) {
  CrfGradTensors g;
  MILLRACE_ASSIGN_OR_RETURN(g.alpha, needed(ctx, slots.alpha, "Alpha"));
  MILLRACE_ASSIGN_OR_RETURN(g.emission_exps, needed(ctx, slots.emission_exps, "EmissionExps"));
  MILLRACE_ASSIGN_OR_RETURN(g.transition_exps,
                            needed(ctx, slots.transition_exps, "TransitionExps"));
  MILLRACE_ASSIGN_OR_RETURN(g.dloss, needed(ctx, slots.dloss, "LogLikelihood@GRAD"));
  const auto fits = [&](const Tensor* tensor, int64_t count) {
    return tensor->numel() == count && tensor->dtype() == in.emission->dtype();
  };
  if (!fits(g.alpha, in.rows * in.tags) || !fits(g.emission_exps, in.rows * in.tags) ||
      !fits(g.transition_exps, (in.tags + 2) * in.tags) ||
      !fits(g.dloss, static_cast<int64_t>(in.spans.size())))
    return ctx.error("outputs of the forward op must fit Emission {}", describe(*in.emission));
  MILLRACE_ASSIGN_OR_RETURN(g.demission, result_like(ctx, slots.demission, *in.emission));
  MILLRACE_ASSIGN_OR_RETURN(g.dtransition, result_like(ctx, slots.dtransition, *in.transition));
  return g;
}

template <typename T>
Status run_grad(const CrfInputs& in, const int64_t* labels, const CrfGradTensors& g,
                Workspace& work) {
  MILLRACE_ASSIGN_OR_RETURN(T* const beta, work.take<T>(0, 2 * in.tags));
  MILLRACE_ASSIGN_OR_RETURN(T* const demission,
                            work.output_or_take<T>(g.demission, 1, in.rows * in.tags));
  std::fill_n(demission, in.rows * in.tags, T(0));
  T* const dtransition = g.dtransition == nullptr ? nullptr : g.dtransition->data<T>();
  if (dtransition != nullptr) std::fill_n(dtransition, (in.tags + 2) * in.tags, T(0));
  for (size_t i = 0; i < in.spans.size(); ++i) {
    const RowSpan& span = in.spans[i];
    if (span.count == 0) continue;
    const int64_t at = span.begin * in.tags;
    const Scores<T> scores{in.tags, in.emission->data<T>() + at, in.transition->data<T>(),
                           g.emission_exps->data<T>() + at, g.transition_exps->data<T>()};
    backward(scores, labels + span.begin, span.count, g.alpha->data<T>() + at,
             g.dloss->data<T>()[i], demission + at, dtransition, beta);
  }
  return Ok();
}

StatusOr<Kernel> linear_chain_crf_grad(const KernelSetup& op) {
  const ArgIndex emission = op.input("Emission");
  const ArgIndex transition = op.input("Transition");
  const ArgIndex label = op.input("Label");
  const ArgIndex lengths = op.input("Length");
  const CrfGradSlots slots{op.input("Alpha"),          op.input("EmissionExps"),
                           op.input("TransitionExps"), op.input("LogLikelihood@GRAD"),
                           op.output("Emission@GRAD"), op.output("Transition@GRAD")};
  auto work = std::make_shared<Workspace>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const CrfInputs in, crf_inputs(ctx, emission, transition, lengths));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const right, needed(ctx, label, "Label"));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const labels,
                              class_labels(ctx, *right, in.rows, in.tags, 0, 0));
    MILLRACE_ASSIGN_OR_RETURN(const CrfGradTensors g, grad_tensors(ctx, slots, in));
    return dispatch<FloatTypes>(in.emission->dtype(), [&](auto tag) {
      return run_grad<typename decltype(tag)::type>(in, labels, g, *work);
    });
  });
}

// The best tag sequence (Viterbi). best has 2 * tags elements; `from` stores one tag index per row
// and tag.
template <typename T>
void decode(const T* x, const T* transition, int64_t rows, int64_t tags, T* best, int64_t* from,
            int64_t* path) {
  T* score = best;
  T* next = best + tags;
  for (int64_t i = 0; i < tags; ++i) score[i] = transition[i] + x[i];
  for (int64_t r = 1; r < rows; ++r) {
    for (int64_t i = 0; i < tags; ++i) {
      int64_t at = 0;
      T most = score[0] + transition[2 * tags + i];
      for (int64_t j = 1; j < tags; ++j) {
        const T value = score[j] + transition[(j + 2) * tags + i];
        if (value > most) {
          most = value;
          at = j;
        }
      }
      next[i] = most + x[r * tags + i];
      from[r * tags + i] = at;
    }
    std::swap(score, next);
  }
  for (int64_t i = 0; i < tags; ++i) score[i] += transition[tags + i];
  int64_t tag = std::max_element(score, score + tags) - score;
  for (int64_t r = rows - 1; r >= 0; --r) {
    path[r] = tag;
    if (r > 0) tag = from[r * tags + tag];
  }
}

StatusOr<Kernel> crf_decoding(const KernelSetup& op) {
  const ArgIndex emission = op.input("Emission");
  const ArgIndex transition = op.input("Transition");
  const ArgIndex label = op.input("Label");
  const ArgIndex lengths = op.input("Length");
  const ArgIndex path = op.output("ViterbiPath");
  auto work = std::make_shared<Workspace>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const CrfInputs in, crf_inputs(ctx, emission, transition, lengths));
    Tensor& out = ctx.out(path);
    if (out.numel() != in.rows || out.dtype() != DType::kInt64)
      return ctx.error("ViterbiPath is {}, expected {} i64", describe(out), in.rows);
    int64_t* const tags = out.data<int64_t>();
    std::fill_n(tags, in.rows, 0);
    MILLRACE_ASSIGN_OR_RETURN(int64_t* const from, work->take<int64_t>(0, in.rows * in.tags));
    MILLRACE_RETURN_IF_ERROR(dispatch<FloatTypes>(in.emission->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      MILLRACE_ASSIGN_OR_RETURN(T* const best, work->take<T>(1, 2 * in.tags));
      for (const RowSpan& span : in.spans) {
        if (span.count == 0) continue;
        decode(in.emission->data<T>() + span.begin * in.tags, in.transition->data<T>(), span.count,
               in.tags, best, from, tags + span.begin);
      }
      return Ok();
    }));
    const Tensor* const right = ctx.find_in(label);
    if (right == nullptr) return Ok();
    // with labels, the result marks the correct tags
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const labels,
                              class_labels(ctx, *right, in.rows, in.tags, 0, 0));
    for (const RowSpan& span : in.spans) {
      for (int64_t r = span.begin; r < span.begin + span.count; ++r)
        tags[r] = tags[r] == labels[r] ? 1 : 0;
    }
    return Ok();
  });
}

}  // namespace
}  // namespace crf

/// linear_chain_crf and crf_decoding.
void add_sequence_crf(KernelRegistry& registry) {
  using namespace crf;
  registry.add("linear_chain_crf", linear_chain_crf);
  registry.add("linear_chain_crf_grad", linear_chain_crf_grad);
  registry.add("crf_decoding", crf_decoding);
}

}  // namespace millrace::kernels
