#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace sample_logits {
namespace {

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Logits", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Labels", 2, 2));
  const VarMeta& logits = ctx.input("Logits");
  const VarMeta& labels = ctx.input("Labels");
  const bool given = ctx.attr<bool>("use_customized_samples");
  if (given && (!ctx.has_input("CustomizedSamples") || !ctx.has_input("CustomizedProbabilities")))
    return ctx.error(
        "attribute 'use_customized_samples' is true, but CustomizedSamples or "
        "CustomizedProbabilities is missing");
  const int64_t rows = dims_known(logits) ? logits.dims[0] : -1;
  const int64_t right = dims_known(labels) ? labels.dims[1] : -1;
  const int64_t columns = right < 0 ? -1 : right + ctx.attr<int32_t>("num_samples");
  ctx.set_output("Samples", DType::kInt64, {rows, columns});
  ctx.set_output("Probabilities", logits.dtype, {rows, columns});
  ctx.set_output("SampledLogits", logits.dtype, {rows, columns});
  ctx.set_output("SampledLabels", DType::kInt64, {rows, right});
  if (dims_known(logits)) ctx.set_output("LogitsDim", logits.dtype, logits.dims);
  if (dims_known(labels)) ctx.set_output("LabelsDim", labels.dtype, labels.dims);
  return Ok();
}

// LogitsDim holds no data; its dims are those of Logits.
Status infer_sample_logits_grad(InferContext& ctx) {
  const VarMeta& dim = ctx.input(ctx.has_input("Logits") ? "Logits" : "LogitsDim");
  if (dims_known(dim))
    ctx.set_output("Logits@GRAD", ctx.input("SampledLogits@GRAD").dtype, dim.dims);
  return Ok();
}

}  // namespace
}  // namespace sample_logits

void add_embedding_sample_logits(OpRegistry& registry) {
  using namespace sample_logits;
  registry.add(
      OpDef("sample_logits")
          .doc("logits of the correct classes and of sampled ones, corrected by the "
               "probability of being sampled")
          .input("Logits", "[rows, classes]")
          .input("Labels", "correct classes, int64 [rows, labels]")
          .input("CustomizedSamples", "[rows, labels + samples], labels first", Arity::kOptional)
          .input("CustomizedProbabilities", "of CustomizedSamples", Arity::kOptional)
          .intermediate("Samples", "classes that are evaluated, labels first")
          .intermediate("Probabilities", "probability with which each was sampled")
          .intermediate("LogitsDim", "dims of Logits; no data")
          .intermediate("LabelsDim", "dims of Labels; no data")
          .output("SampledLogits", "[rows, labels + samples]")
          .output("SampledLabels", "int64 [rows, labels]: 0, 1, ...")
          .attr("use_customized_samples", false, "use CustomizedSamples instead of sampling")
          .attr("uniq", true, "no effect: no class is sampled twice")
          .attr("remove_accidental_hits", true, "ignore a sampled class that is a label of its row")
          .required_attr<int32_t>("num_samples", "number of classes to sample, common to all rows")
          .range(0)
          .attr("seed", 0, "0: a new seed in every run")
          .infer(infer)
          .grad({.type = "sample_logits_grad",
                 .inputs = {"LogitsDim", "LabelsDim", "Samples", "SampledLogits@GRAD"},
                 .outputs = {"Logits@GRAD"},
                 .infer = infer_sample_logits_grad}));
}

}  // namespace millrace::ops
