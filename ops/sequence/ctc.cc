#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Sequences of labels without alignment: loss, alignment, distance.
namespace millrace::ops {
namespace ctc {
namespace {

Status infer_warpctc(InferContext& ctx) {
  const VarMeta& logits = ctx.input("Logits");
  if (!dims_known(logits)) return Ok();
  const bool padded = ctx.has_input("LogitsLength");
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Logits", padded ? 3 : 2, padded ? 3 : 2));
  const auto blank = ctx.attr<int32_t>("blank");
  const int64_t classes = logits.dims.back();
  if (classes >= 0 && blank >= classes) {
    return ctx.error("attribute 'blank' is {}, expected a class in [0, {})", blank, classes);
  }
  int64_t sequences = padded ? logits.dims[1] : -1;
  if (!padded && !logits.lod.empty()) sequences = logits.lod.sequences(0);
  ctx.set_output("Loss", logits.dtype, {sequences, 1});
  VarMeta grad = logits;
  grad.lod_level = 0;
  grad.lod = {};
  ctx.set_output("WarpCTCGrad", std::move(grad));
  return Ok();
}

Status infer_align(InferContext& ctx) {
  const VarMeta& input = ctx.input("Input");
  if (!dims_known(input)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Input", 2, 2));
  VarMeta out = input;
  if (!ctx.has_input("InputLength")) out.dims[0] = -1;
  ctx.set_output("Output", std::move(out));
  ctx.set_output("OutputLength", input.dtype, {input.dims[0], 1});
  return Ok();
}

Status infer_distance(InferContext& ctx) {
  const VarMeta& hyps = ctx.input("Hyps");
  const bool padded = ctx.has_input("HypsLength") && dims_known(hyps) && hyps.rank() > 0;
  ctx.set_output("Out", DType::kFloat32, {padded ? hyps.dims[0] : -1, 1});
  ctx.set_output("SequenceNum", DType::kInt64, {1});
  return Ok();
}

}  // namespace
}  // namespace ctc

void add_sequence_ctc(OpRegistry& registry) {
  using namespace ctc;
  registry.add(OpDef("warpctc")
                   .doc("connectionist temporal classification loss")
                   .input("Logits", "sequences [rows, classes] or [length, batch, classes]")
                   .input("Label", "correct labels")
                   .input("LogitsLength", "length of each row of Logits", Arity::kOptional)
                   .input("LabelLength", "length of each row of Label", Arity::kOptional)
                   .output("Loss", "[sequences, 1]")
                   .intermediate("WarpCTCGrad", "gradient of Logits")
                   .attr("blank", 0, "class of the blank, which means no label")
                   .range(0)
                   .attr("norm_by_times", false, "divide gradients by the length")
                   .infer(infer_warpctc)
                   .grad({"warpctc_grad",
                          {"Logits", "LogitsLength", "Loss@GRAD", "WarpCTCGrad"},
                          {"Logits@GRAD"},
                          {}}));
  registry.add(OpDef("ctc_align")
                   .doc("merges repeated labels and drops blanks")
                   .input("Input", "labels, sequences [rows, 1] or [batch, length]")
                   .input("InputLength", "length of each row", Arity::kOptional)
                   .output("Output", "remaining labels")
                   .output("OutputLength", "length of each row [batch, 1]", Arity::kOptional)
                   .attr("blank", 0, "label to drop")
                   .attr("merge_repeated", true, "merge labels that follow each other")
                   .attr("padding_value", 0, "value after the end of a row")
                   .infer(infer_align));
  registry.add(OpDef("edit_distance")
                   .doc("insertions, deletions and replacements between two sequences")
                   .input("Hyps", "sequences found")
                   .input("Refs", "correct sequences")
                   .input("HypsLength", "length of each row of Hyps", Arity::kOptional)
                   .input("RefsLength", "length of each row of Refs", Arity::kOptional)
                   .output("SequenceNum", "number of sequences, one int64")
                   .output("Out", "distance of each pair [sequences, 1], float32")
                   .attr("normalized", false, "divide by the length of the correct sequence")
                   .infer(infer_distance));
}

}  // namespace millrace::ops
