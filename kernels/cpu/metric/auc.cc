#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/cpu/labels.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Area under the ROC curve from counts of positive and negative examples by score.
//
// With slide_steps = s > 0, a var of counts has s blocks of buckets, one for each of the last s
// steps, then a block with their sum, then the number of steps so far.
namespace millrace::kernels {
namespace auc_kernels {
namespace {

struct AucCounts {
  int64_t* positive;
  int64_t* negative;
};

double area(const AucCounts& c, int64_t buckets) {
  double positives = 0;
  double negatives = 0;
  double sum = 0;
  for (int64_t b = buckets - 1; b >= 0; --b) {
    const double before = positives;
    positives += static_cast<double>(c.positive[b]);
    sum += static_cast<double>(c.negative[b]) * (before + positives) / 2;
    negatives += static_cast<double>(c.negative[b]);
  }
  return positives > 0 && negatives > 0 ? sum / positives / negatives : sum;
}

struct Batch {
  const Tensor* predict;
  const int64_t* labels;
  const Tensor* weight;  // optional: 0 leaves an example out
};

template <typename T>
Status count(const KernelContext& ctx, const Batch& batch, int64_t buckets, const AucCounts& to) {
  const Tensor& predict = *batch.predict;
  const int64_t rows = predict.dim(0);
  const int64_t width = rows == 0 ? 0 : predict.numel() / rows;
  const auto weight_of = [&](int64_t i) -> float {
    if (batch.weight == nullptr || batch.weight->numel() == 0) return 1;
    return batch.weight->data<float>()[batch.weight->numel() == rows ? i : 0];
  };
  for (int64_t i = 0; i < rows; ++i) {
    const T score = predict.data<T>()[(i + 1) * width - 1];
    if (!(score >= 0 && score <= 1))
      return ctx.error("score {} is {}, expected one in [0, 1]", i, static_cast<double>(score));
    if (weight_of(i) == 0) continue;
    const auto bucket = static_cast<int64_t>(score * static_cast<T>(buckets - 1));
    ++(batch.labels[i] > 0 ? to.positive : to.negative)[bucket];
  }
  return Ok();
}

// The counts of the step that leaves the window are subtracted and replaced by the new ones.
Status slide(const KernelContext& ctx, const Batch& batch, int64_t buckets, int64_t steps,
             const AucCounts& all) {
  const int64_t number = all.positive[(steps + 1) * buckets];
  if (number < 0)
    return ctx.error("StatPos has {} as its number of steps, expected at least 0", number);
  const int64_t begin = number % steps * buckets;
  const AucCounts current{all.positive + begin, all.negative + begin};
  const AucCounts sum{all.positive + steps * buckets, all.negative + steps * buckets};
  for (int64_t b = 0; b < buckets; ++b) {
    sum.positive[b] -= current.positive[b];
    sum.negative[b] -= current.negative[b];
  }
  std::fill_n(current.positive, buckets, 0);
  std::fill_n(current.negative, buckets, 0);
  MILLRACE_RETURN_IF_ERROR(dispatch<FloatTypes>(batch.predict->dtype(), [&](auto tag) {
    return count<typename decltype(tag)::type>(ctx, batch, buckets, current);
  }));
  for (int64_t b = 0; b < buckets; ++b) {
    sum.positive[b] += current.positive[b];
    sum.negative[b] += current.negative[b];
  }
  ++all.positive[(steps + 1) * buckets];
  ++all.negative[(steps + 1) * buckets];
  return Ok();
}

struct AucSlots {
  ArgIndex predict;
  ArgIndex label;
  ArgIndex weight;
  ArgIndex positive;
  ArgIndex negative;
  ArgIndex auc;
  ArgIndex positive_out;
  ArgIndex negative_out;
};

StatusOr<int64_t*> counts_of(const KernelContext& ctx, ArgIndex in, ArgIndex out, int64_t size) {
  const Tensor& from = ctx.in(in);
  if (from.dtype() != DType::kInt64 || from.numel() != size)
    return ctx.error("StatPos and StatNeg must be {} i64, found {}", size, describe(from));
  Tensor& to = ctx.out(out);
  if (!to.shares_memory_with(from)) std::copy_n(from.data<int64_t>(), size, to.data<int64_t>());
  return to.data<int64_t>();
}

Status run(const KernelContext& ctx, const AucSlots& slots, int64_t buckets, int64_t steps) {
  const int64_t size = steps == 0 ? buckets : (steps + 1) * buckets + 1;
  AucCounts all{};
  MILLRACE_ASSIGN_OR_RETURN(all.positive, counts_of(ctx, slots.positive, slots.positive_out, size));
  MILLRACE_ASSIGN_OR_RETURN(all.negative, counts_of(ctx, slots.negative, slots.negative_out, size));
  Batch batch{&ctx.in(slots.predict), nullptr, ctx.find_in(slots.weight)};
  if (ctx.in(slots.label).numel() != batch.predict->dim(0))
    return ctx.error("Label must have one value for each row of Predict {}, found {}",
                     describe(*batch.predict), describe(ctx.in(slots.label)));
  if (batch.weight != nullptr && batch.weight->dtype() != DType::kFloat32)
    return ctx.error("InsTagWeight must be f32, found {}", describe(*batch.weight));
  if (batch.weight != nullptr && batch.weight->numel() > 1 &&
      batch.weight->numel() != batch.predict->dim(0))
    return ctx.error(
        "InsTagWeight must have one element, or one for each row of Predict {}, found {}",
        describe(*batch.predict), describe(*batch.weight));
  MILLRACE_ASSIGN_OR_RETURN(batch.labels, integers_of(ctx, ctx.in(slots.label), 0));
  if (steps > 0) {
    MILLRACE_RETURN_IF_ERROR(slide(ctx, batch, buckets, steps, all));
    all.positive += steps * buckets;
    all.negative += steps * buckets;
  } else {
    MILLRACE_RETURN_IF_ERROR(dispatch<FloatTypes>(batch.predict->dtype(), [&](auto tag) {
      return count<typename decltype(tag)::type>(ctx, batch, buckets, all);
    }));
  }
  *ctx.out(slots.auc).data<double>() = area(all, buckets);
  return Ok();
}

StatusOr<Kernel> auc(const KernelSetup& op) {
  const AucSlots slots{op.input("Predict"),     op.input("Label"),      op.input("InsTagWeight"),
                       op.input("StatPos"),     op.input("StatNeg"),    op.output("AUC"),
                       op.output("StatPosOut"), op.output("StatNegOut")};
  if (op.attr<std::string>("curve") != "ROC")
    return Status(StatusCode::kUnimplemented, "auc of the curve 'PR'");
  const int64_t buckets = op.attr<int32_t>("num_thresholds") + 1;
  const int64_t steps = op.attr<int32_t>("slide_steps");
  return Kernel(
      [=](const KernelContext& ctx) -> Status { return run(ctx, slots, buckets, steps); });
}

}  // namespace
}  // namespace auc_kernels

void add_metric_auc(KernelRegistry& registry) {
  registry.add("auc", auc_kernels::auc);
}

}  // namespace millrace::kernels
