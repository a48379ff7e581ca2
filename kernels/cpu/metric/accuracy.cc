#include <algorithm>

#include "kernels/cpu/labels.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Counts of correct and wrong classes.
namespace millrace::kernels {
namespace accuracy_kernels {
namespace {

StatusOr<Kernel> accuracy(const KernelSetup& op) {
  const ArgIndex indices = op.input("Indices");
  const ArgIndex label = op.input("Label");
  const ArgIndex accuracy = op.output("Accuracy");
  const ArgIndex correct = op.output("Correct");
  const ArgIndex total = op.output("Total");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& best = ctx.in(indices);
    const int64_t rows = best.rank() == 0 ? 1 : best.dim(0);
    const int64_t k = rows == 0 ? 0 : best.numel() / rows;
    if (ctx.in(label).numel() != rows)
      return ctx.error("Label must have one class for each row of Indices {}, found {}",
                       describe(best), describe(ctx.in(label)));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const classes, integers_of(ctx, best, 0));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const right, integers_of(ctx, ctx.in(label), 1));
    int32_t hits = 0;
    for (int64_t i = 0; i < rows; ++i)
      hits += std::find(classes + i * k, classes + (i + 1) * k, right[i]) != classes + (i + 1) * k;
    *ctx.out(correct).data<int32_t>() = hits;
    *ctx.out(total).data<int32_t>() = static_cast<int32_t>(rows);
    *ctx.out(accuracy).data<float>() =
        rows == 0 ? 0.0F : static_cast<float>(hits) / static_cast<float>(rows);
    return Ok();
  });
}

Status add_counts(const KernelContext& ctx, ArgRange from, int32_t* to, int64_t classes) {
  for (int32_t k = 0; k < from.count; ++k) {
    const Tensor& counts = ctx.in(from, k);
    if (counts.dtype() != DType::kInt32 || counts.numel() != classes)
      return ctx.error("InWrongs and InCorrects must be {} i32, found {}", classes,
                       describe(counts));
    for (int64_t c = 0; c < classes; ++c) to[c] += counts.data<int32_t>()[c];
  }
  return Ok();
}

float mean_of_ratios(const int32_t* correct, const int32_t* wrong, int64_t classes) {
  float sum = 0;
  int64_t found = 0;
  for (int64_t c = 0; c < classes; ++c) {
    const int32_t all = correct[c] + wrong[c];
    if (all == 0) continue;
    sum += static_cast<float>(correct[c]) / static_cast<float>(all);
    ++found;
  }
  return found == 0 ? 0.0F : sum / static_cast<float>(found);
}

StatusOr<Kernel> mean_iou(const KernelSetup& op) {
  const ArgIndex predictions = op.input("Predictions");
  const ArgIndex labels = op.input("Labels");
  const ArgRange wrongs = op.inputs("InWrongs");
  const ArgRange corrects = op.inputs("InCorrects");
  const ArgRange means = op.inputs("InMeanIou");
  const ArgIndex mean_out = op.output("OutMeanIou");
  const ArgIndex wrong_out = op.output("OutWrong");
  const ArgIndex correct_out = op.output("OutCorrect");
  const int64_t classes = op.attr<int32_t>("num_classes");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const int64_t count = ctx.in(predictions).numel();
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const found,
                              class_labels(ctx, ctx.in(predictions), count, classes, 0, 0));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t* const right,
                              class_labels(ctx, ctx.in(labels), count, classes, 0, 1));
    int32_t* const wrong = ctx.out(wrong_out).data<int32_t>();
    int32_t* const correct = ctx.out(correct_out).data<int32_t>();
    std::fill_n(wrong, classes, 0);
    std::fill_n(correct, classes, 0);
    for (int64_t i = 0; i < count; ++i) {
      if (found[i] == right[i]) {
        ++correct[found[i]];
      } else {
        ++wrong[found[i]];
        ++wrong[right[i]];
      }
    }
    MILLRACE_RETURN_IF_ERROR(add_counts(ctx, wrongs, wrong, classes));
    MILLRACE_RETURN_IF_ERROR(add_counts(ctx, corrects, correct, classes));
    float mean = mean_of_ratios(correct, wrong, classes);
    for (int32_t k = 0; k < means.count; ++k) {
      const Tensor& before = ctx.in(means, k);
      if (before.dtype() != DType::kFloat32 || before.numel() != 1)
        return ctx.error("InMeanIou must be one f32, found {}", describe(before));
      mean += *before.data<float>();
    }
    *ctx.out(mean_out).data<float>() = mean;
    return Ok();
  });
}

}  // namespace
}  // namespace accuracy_kernels

void add_metric_accuracy(KernelRegistry& registry) {
  using namespace accuracy_kernels;
  registry.add("accuracy", accuracy);
  registry.add("mean_iou", mean_iou);
}

}  // namespace millrace::kernels
