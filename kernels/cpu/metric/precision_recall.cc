#include <algorithm>

#include "kernels/cpu/labels.h"
#include "kernels/cpu/scalar.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace precision_recall_kernels {
namespace {

// Columns of the states of a class.
enum PrecisionRecallState { kTruePositive, kFalsePositive, kTrueNegative, kFalseNegative, kStates };

// A ratio with a denominator of 0 counts as 1.
double ratio(double right, double wrong) {
  return right > 0 || wrong > 0 ? right / (right + wrong) : 1.0;
}
double f1(double precision, double recall) {
  return precision > 0 || recall > 0 ? 2 * precision * recall / (precision + recall) : 0.0;
}

// Macro and micro averages.
void metrics(const float* states, int64_t classes, double* out) {
  double precision = 0;
  double recall = 0;
  double totals[kStates] = {};
  for (int64_t c = 0; c < classes; ++c) {
    const float* const s = states + c * kStates;
    precision += ratio(s[kTruePositive], s[kFalsePositive]);
    recall += ratio(s[kTruePositive], s[kFalseNegative]);
    for (int k = 0; k < kStates; ++k) totals[k] += s[k];
  }
  precision /= static_cast<double>(classes);
  recall /= static_cast<double>(classes);
  const double micro_precision = ratio(totals[kTruePositive], totals[kFalsePositive]);
  const double micro_recall = ratio(totals[kTruePositive], totals[kFalseNegative]);
  const double values[] = {precision,       recall,       f1(precision, recall),
                           micro_precision, micro_recall, f1(micro_precision, micro_recall)};
  std::copy(std::begin(values), std::end(values), out);
}

void add_example(int64_t found, int64_t right, float weight, int64_t classes, float* states) {
  for (int64_t c = 0; c < classes; ++c) states[c * kStates + kTrueNegative] += weight;
  states[found * kStates + kTrueNegative] -= weight;
  if (found == right) {
    states[found * kStates + kTruePositive] += weight;
    return;
  }
  states[right * kStates + kTrueNegative] -= weight;
  states[found * kStates + kFalsePositive] += weight;
  states[right * kStates + kFalseNegative] += weight;
}

struct PrecisionRecallSlots {
  ArgIndex indices;
  ArgIndex labels;
  ArgIndex weights;
  ArgIndex states;
  ArgIndex batch;
  ArgIndex all;
  ArgIndex states_out;
};

Status check_floats(const KernelContext& ctx, const Tensor* tensor, const char* slot,
                    int64_t count) {
  if (tensor == nullptr || (tensor->dtype() == DType::kFloat32 && tensor->numel() == count))
    return Ok();
  return ctx.error("{} must be {} f32, found {}", slot, count, describe(*tensor));
}

Status run(const KernelContext& ctx, const PrecisionRecallSlots& slots, int64_t classes) {
  const Tensor& indices = ctx.in(slots.indices);
  const int64_t count = indices.numel();
  MILLRACE_ASSIGN_OR_RETURN(const int64_t* const found,
                            class_labels(ctx, indices, count, classes, 0, 0));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t* const right,
                            class_labels(ctx, ctx.in(slots.labels), count, classes, 0, 1));
  const Tensor* const weights = ctx.find_in(slots.weights);
  const Tensor* const before = ctx.find_in(slots.states);
  MILLRACE_RETURN_IF_ERROR(check_floats(ctx, weights, "Weights", count));
  MILLRACE_RETURN_IF_ERROR(check_floats(ctx, before, "StatesInfo", classes * kStates));
  MILLRACE_ASSIGN_OR_RETURN(
      std::byte* const scratch,
      ctx.device().scratch(static_cast<size_t>(classes * kStates) * sizeof(float), 2));
  auto* const states = reinterpret_cast<float*>(scratch);
  std::fill_n(states, classes * kStates, 0.0F);
  for (int64_t i = 0; i < count; ++i) {
    add_example(found[i], right[i], weights == nullptr ? 1.0F : weights->data<float>()[i], classes,
                states);
  }
  metrics(states, classes, ctx.out(slots.batch).data<double>());
  float* const out = ctx.out(slots.states_out).data<float>();
  for (int64_t i = 0; i < classes * kStates; ++i)
    out[i] = states[i] + (before == nullptr ? 0.0F : before->data<float>()[i]);
  metrics(out, classes, ctx.out(slots.all).data<double>());
  return Ok();
}

StatusOr<Kernel> precision_recall(const KernelSetup& op) {
  const PrecisionRecallSlots slots{op.input("Indices"),         op.input("Labels"),
                                   op.input("Weights"),         op.input("StatesInfo"),
                                   op.output("BatchMetrics"),   op.output("AccumMetrics"),
                                   op.output("AccumStatesInfo")};
  const int64_t classes = op.attr<int32_t>("class_number");
  return Kernel([=](const KernelContext& ctx) -> Status { return run(ctx, slots, classes); });
}

}  // namespace
}  // namespace precision_recall_kernels

void add_metric_precision_recall(KernelRegistry& registry) {
  registry.add("precision_recall", precision_recall_kernels::precision_recall);
}

}  // namespace millrace::kernels
