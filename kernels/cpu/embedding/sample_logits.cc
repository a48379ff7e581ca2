#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <vector>

#include "kernels/cpu/embedding/class_sampler.h"
#include "kernels/cpu/index.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/strided.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// Replaces infinity, and is subtracted from the logits of classes that must be ignored.
constexpr double kSampleLimit = 1e20;

template <typename T>
T bounded_logit(T x) {
  return std::isinf(x) ? static_cast<T>(x > 0 ? kSampleLimit : -kSampleLimit) : x;
}

// The classes of a run: `right` labels for each row, then `drawn` classes shared by all rows.
struct SampledClasses {
  int64_t rows = 0;
  int64_t right = 0;
  int64_t drawn = 0;
  [[nodiscard]] int64_t columns() const { return right + drawn; }
};

// Expected number of occurrences of a class among `drawn` distinct classes, which took `draws`
// draws.
double drawn_at_all(double probability, int64_t drawn, int64_t draws) {
  if (drawn == draws) return probability * static_cast<double>(drawn);
  return -std::expm1(static_cast<double>(draws) * std::log1p(-probability));
}

template <typename T>
void draw_classes(const SampledClasses& s, int64_t classes, uint64_t key, const int64_t* labels,
                  int64_t* samples, T* probabilities) {
  // a distribution over classes + 1 numbers, the last of which is never used
  const ClassSampler sampler(ClassSampler::Law::kLogUniform, classes + 1);
  std::unordered_set<int64_t> seen;
  std::vector<int64_t> drawn;
  int64_t draws = 0;
  while (static_cast<int64_t>(drawn.size()) < s.drawn) {
    const uint64_t bits = random_bits(key, static_cast<uint64_t>(draws++));
    const int64_t value = std::min(sampler.draw(bits), classes - 1);
    if (seen.insert(value).second) drawn.push_back(value);
  }
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t k = 0; k < s.columns(); ++k) {
      const int64_t value =
          k < s.right ? labels[r * s.right + k] : drawn[static_cast<size_t>(k - s.right)];
      samples[r * s.columns() + k] = value;
      probabilities[r * s.columns() + k] =
          static_cast<T>(drawn_at_all(sampler.probability(value), s.drawn, draws));
    }
  }
}

template <typename T>
void gather_logits(const SampledClasses& s, const T* logits, int64_t classes,
                   const int64_t* samples, const T* probabilities, bool remove_hits, T* out) {
  for (int64_t r = 0; r < s.rows; ++r) {
    const int64_t* const row = samples + r * s.columns();
    for (int64_t k = 0; k < s.columns(); ++k) {
      const int64_t at = r * s.columns() + k;
      T value = logits[r * classes + row[k]];
      const bool hit = k >= s.right && std::find(row, row + s.right, row[k]) != row + s.right;
      if (remove_hits && hit) value -= static_cast<T>(kSampleLimit);
      out[at] = bounded_logit(value - bounded_logit(std::log(probabilities[at])));
    }
  }
}

struct SampleSlots {
  ArgIndex logits, labels, given_samples, given_probabilities;
  ArgIndex samples, probabilities, out, out_labels;
};

// The result, or the buffer for the classes if the op has no output for them.
struct SampleTensors {
  Tensor own_samples;
  Tensor own_probabilities;
  Tensor* samples = nullptr;
  Tensor* probabilities = nullptr;
};

Status take_given(const KernelContext& ctx, const SampleSlots& slots, const SampledClasses& s,
                  DType dtype, int64_t classes, SampleTensors& t) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const samples,
                            needed(ctx, slots.given_samples, "CustomizedSamples"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const probabilities,
                            needed(ctx, slots.given_probabilities, "CustomizedProbabilities"));
  const int64_t count = s.rows * s.columns();
  if (samples->dtype() != DType::kInt64 || samples->numel() != count ||
      probabilities->dtype() != dtype || probabilities->numel() != count)
    return ctx.error("CustomizedSamples {} and CustomizedProbabilities {} must be [{}, {}]",
                     describe(*samples), describe(*probabilities), s.rows, s.columns());
  MILLRACE_RETURN_IF_ERROR(
      check_range(samples->data<int64_t>(), count, classes, "CustomizedSamples"));
  // the outputs may be the same tensors as the inputs
  if (t.samples != samples) MILLRACE_RETURN_IF_ERROR(t.samples->copy_from(*samples));
  return t.probabilities == probabilities ? Ok() : t.probabilities->copy_from(*probabilities);
}

StatusOr<Kernel> sample_logits(const KernelSetup& op) {
  const SampleSlots slots{op.input("Logits"),
                          op.input("Labels"),
                          op.input("CustomizedSamples"),
                          op.input("CustomizedProbabilities"),
                          op.output("Samples"),
                          op.output("Probabilities"),
                          op.output("SampledLogits"),
                          op.output("SampledLabels")};
  const bool given = op.attr<bool>("use_customized_samples");
  const bool remove_hits = op.attr<bool>("remove_accidental_hits");
  const auto wanted = op.attr<int64_t>("num_samples");
  const auto seed = op.attr<int64_t>("seed");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& logits = ctx.in(slots.logits);
    const Tensor& labels = ctx.in(slots.labels);
    if (logits.rank() != 2 || labels.rank() != 2 || labels.dim(0) != logits.dim(0) ||
        labels.dtype() != DType::kInt64)
      return ctx.error("Labels must be int64 with the rows of Logits {}, found {}",
                       describe(logits), describe(labels));
    const SampledClasses s{logits.dim(0), labels.dim(1), wanted};
    const int64_t classes = logits.dim(1);
    if (!given && wanted > classes)
      return ctx.error("attribute 'num_samples' is {}, but there are {} classes", wanted, classes);
    MILLRACE_RETURN_IF_ERROR(
        check_range(labels.data<int64_t>(), labels.numel(), classes, "Labels"));
    SampleTensors t;
    t.samples = slots.samples ? &ctx.out(slots.samples) : &t.own_samples;
    t.probabilities = slots.probabilities ? &ctx.out(slots.probabilities) : &t.own_probabilities;
    const Dims dims{s.rows, s.columns()};
    if (given) {
      MILLRACE_RETURN_IF_ERROR(take_given(ctx, slots, s, logits.dtype(), classes, t));
    } else {
      MILLRACE_RETURN_IF_ERROR(t.samples->resize(DType::kInt64, dims));
      MILLRACE_RETURN_IF_ERROR(t.probabilities->resize(logits.dtype(), dims));
    }
    Tensor& out = ctx.out(slots.out);
    MILLRACE_RETURN_IF_ERROR(size_output(out, logits.dtype(), dims));
    if (Tensor* const numbers = ctx.find_out(slots.out_labels)) {
      MILLRACE_RETURN_IF_ERROR(size_output(*numbers, DType::kInt64, labels.dims()));
      for (int64_t i = 0; i < labels.numel(); ++i) numbers->data<int64_t>()[i] = i % s.right;
    }
    return dispatch<FloatTypes>(logits.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      if (!given)
        draw_classes(s, classes, stream_key(ctx.device(), seed), labels.data<int64_t>(),
                     t.samples->data<int64_t>(), t.probabilities->data<T>());
      gather_logits(s, logits.data<T>(), classes, t.samples->data<int64_t>(),
                    t.probabilities->data<T>(), remove_hits, out.data<T>());
      return Ok();
    });
  });
}

StatusOr<Kernel> sample_logits_grad(const KernelSetup& op) {
  const ArgIndex samples = op.input("Samples");
  const ArgIndex dout = op.input("SampledLogits@GRAD");
  const ArgIndex dlogits = op.output("Logits@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!dlogits) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const classes, needed(ctx, samples, "Samples"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const grad, needed(ctx, dout, "SampledLogits@GRAD"));
    Tensor& to = ctx.out(dlogits);
    if (!to.initialized() || to.rank() != 2 || classes->dtype() != DType::kInt64 ||
        grad->rank() != 2 || classes->numel() != grad->numel() || grad->dim(0) != to.dim(0) ||
        to.dtype() != grad->dtype())
      return ctx.error("Samples {} and SampledLogits@GRAD {} do not fit Logits@GRAD {}",
                       describe(*classes), describe(*grad), describe(to));
    const int64_t* const at = classes->data<int64_t>();
    MILLRACE_RETURN_IF_ERROR(check_range(at, classes->numel(), to.dim(1), "Samples"));
    fill_zero(ctx.device(), to);
    return dispatch<FloatTypes>(to.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const int64_t columns = grad->dim(1);
      for (int64_t i = 0; i < grad->numel(); ++i)
        to.data<T>()[i / columns * to.dim(1) + at[i]] += grad->data<T>()[i];
      return Ok();
    });
  });
}

}  // namespace

void add_embedding_sample_logits(KernelRegistry& registry) {
  registry.add("sample_logits", sample_logits);
  registry.add("sample_logits_grad", sample_logits_grad);
}

}  // namespace millrace::kernels
