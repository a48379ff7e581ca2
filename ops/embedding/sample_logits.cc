#include "ops/embedding/defs.h"
#include "ops/infer_helpers.h"

namespace millrace::ops {
namespace {

Status infer_sample_logits(InferContext& ctx) {
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

void add_sample_logits_ops(OpRegistry& registry) {
  registry.add(
      OpDef("sample_logits")
          .doc("logits of the right classes and of some that are drawn, corrected by how "
               "likely each was drawn")
          .input("Logits", "[rows, classes]")
          .input("Labels", "right classes, int64 [rows, labels]")
          .input("CustomizedSamples", "[rows, labels + samples], labels first", Arity::kOptional)
          .input("CustomizedProbabilities", "of CustomizedSamples", Arity::kOptional)
          .intermediate("Samples", "classes looked at, labels first")
          .intermediate("Probabilities", "how likely each was drawn")
          .intermediate("LogitsDim", "dims of Logits; no data")
          .intermediate("LabelsDim", "dims of Labels; no data")
          .output("SampledLogits", "[rows, labels + samples]")
          .output("SampledLabels", "int64 [rows, labels]: 0, 1, ...")
          .attr("use_customized_samples", false, "take the classes that are given")
          .attr("uniq", true, "no class is drawn twice, whatever this says")
          .attr("remove_accidental_hits", true,
                "a drawn class that is a label of its row counts nothing")
          .required_attr<int32_t>("num_samples", "classes to draw for all rows")
          .range(0)
          .attr("seed", 0, "0: another one each run")
          .infer(infer_sample_logits)
          .grad({.type = "sample_logits_grad",
                 .inputs = {"LogitsDim", "LabelsDim", "Samples", "SampledLogits@GRAD"},
                 .outputs = {"Logits@GRAD"},
                 .infer = infer_sample_logits_grad}));
}

}  // namespace millrace::ops
