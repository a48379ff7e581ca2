#include <algorithm>

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/sequence/lods.h"

// Fused ops over sequences, written by optimizers of inference programs. They have no gradients.
namespace millrace::ops {
namespace fused {
namespace {

// One row per sequence of X[0], each a sequence of length 1.
// \param dropped  columns of each X that are left out
Status infer_pooled_columns(InferContext& ctx, int64_t dropped) {
  const VarMeta& first = ctx.input("X", 0);
  int64_t width = 0;
  for (size_t k = 0; k < ctx.input_count("X"); ++k) {
    const VarMeta& x = ctx.input("X", k);
    if (!dims_known(x)) {
      width = -1;
      continue;
    }
    if (x.rank() != 2)
      return ctx.error("'X' {} has shape {}, expected [rows, width]", k, dims_text(x.dims));
    width = width < 0 || x.dims[1] < 0 ? -1 : width + x.dims[1] - dropped;
  }
  VarMeta out = tensor_meta(first.dtype, {-1, width}, 1);
  if (!first.lod.empty()) {
    const int64_t sequences = first.lod.sequences(0);
    out.dims[0] = sequences;
    LodLevel each(static_cast<size_t>(sequences) + 1);
    for (size_t i = 0; i < each.size(); ++i) each[i] = static_cast<int64_t>(i);
    out.lod = Lod({std::move(each)});
  }
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_pooled_concat(InferContext& ctx) {
  return infer_pooled_columns(ctx, 0);
}

Status infer_pooled_cvm(InferContext& ctx) {
  const VarMeta& counts = ctx.input("CVM");
  if (dims_known(counts) && (counts.rank() != 2 || !dims_agree(counts.dims[1], 2)))
    return ctx.error("'CVM' has shape {}, expected [rows, 2]", dims_text(counts.dims));
  for (size_t k = 0; k < ctx.input_count("X"); ++k) {
    const VarMeta& x = ctx.input("X", k);
    if (dims_known(x) && x.rank() == 2 && x.dims[1] >= 0 && x.dims[1] < 2)
      return ctx.error("'X' {} has shape {}, expected shows and clicks as columns 0 and 1", k,
                       dims_text(x.dims));
  }
  return infer_pooled_columns(ctx, ctx.attr<bool>("use_cvm") ? 0 : 2);
}

Status infer_seqconv(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& filter = ctx.input("Filter");
  const VarMeta& bias = ctx.input("Bias");
  if (!dims_known(x) || !dims_known(filter)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Filter", 2, 2));
  const int64_t length = ctx.attr<int32_t>("contextLength");
  if (x.dims[1] >= 0 && !dims_agree(filter.dims[0], x.dims[1] * length)) {
    return ctx.error(
        "'Filter' has shape {}, expected {} rows, attribute 'contextLength' {} times the width of "
        "'X' {}",
        dims_text(filter.dims), x.dims[1] * length, length, dims_text(x.dims));
  }
  if (dims_known(bias) && !dims_agree(dims_product(bias.dims), filter.dims[1]))
    return ctx.error("'Bias' has shape {}, expected {} elements", dims_text(bias.dims),
                     filter.dims[1]);
  VarMeta out = x;
  out.dims[1] = filter.dims[1];
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_seqexpand_fc(InferContext& ctx) {
  const VarMeta& x = ctx.input("X", 0);
  const VarMeta& weight = ctx.input("FCWeight");
  if (ctx.input_count("X") < 2)
    return ctx.error("'X' has {} vars, expected sequences and at least one matrix",
                     ctx.input_count("X"));
  if (dims_known(weight)) MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "FCWeight", 2, 2));
  int64_t width = 0;
  for (size_t k = 0; k < ctx.input_count("X"); ++k) {
    const VarMeta& part = ctx.input("X", k);
    const bool known = dims_known(part);
    if (known && part.rank() != 2)
      return ctx.error("'X' {} has shape {}, expected [rows, width]", k, dims_text(part.dims));
    width = width < 0 || !known || part.dims[1] < 0 ? -1 : width + part.dims[1];
  }
  const int64_t columns = dims_known(weight) ? weight.dims[1] : -1;
  if (dims_known(weight) && !dims_agree(weight.dims[0], width))
    return ctx.error("'FCWeight' has shape {}, expected {} rows, the widths of 'X'",
                     dims_text(weight.dims), width);
  const VarMeta& bias = ctx.input("FCBias");
  if (ctx.has_input("FCBias") && dims_known(bias) && !dims_agree(dims_product(bias.dims), columns))
    return ctx.error("'FCBias' has shape {}, expected {} elements", dims_text(bias.dims), columns);
  VarMeta out = tensor_with_lod_of(x, x.dtype, {-1, columns});
  if (dims_known(x)) out.dims[0] = x.dims[0];
  ctx.set_output("Out", std::move(out));
  return Ok();
}

OpDef& window_attrs(OpDef& def) {
  return def.attr("pooltype", "SUM", "how the rows of a sequence are combined")
      .one_of({"SUM", "AVERAGE", "SQRT"})
      .attr("axis", 1, "only 1 is possible")
      .range(1, 1);
}

}  // namespace
}  // namespace fused

void add_sequence_fused(OpRegistry& registry) {
  using namespace fused;
  OpDef pooled("fusion_seqpool_concat");
  pooled.doc("sequence_pool of each X, concatenated by columns; empty sequences yield 0")
      .input("X", "sequences [rows, width], equally many in each", Arity::kMany)
      .output("Out", "[sequences, all widths]")
      .infer(infer_pooled_concat)
      .flops(elementwise_flops);
  registry.add(window_attrs(pooled));
  OpDef counted("fusion_seqpool_cvm_concat");
  counted.doc("fusion_seqpool_concat with shows and clicks of each X as logarithms, as in cvm")
      .input("X", "sequences [rows, width], equally many in each", Arity::kMany)
      .input("CVM", "[sequences, 2]; not read")
      .output("Out", "[sequences, all widths]")
      .attr("use_cvm", true, "keep the two columns")
      .infer(infer_pooled_cvm)
      .flops(elementwise_flops);
  registry.add(window_attrs(counted));
  registry.add(OpDef("fusion_seqconv_eltadd_relu")
                   .doc("sequence_conv, a bias and relu")
                   .input("X", "sequences [rows, width]")
                   .input("Filter", "[contextLength * width, filters]")
                   .input("Bias", "[1, filters]")
                   .output("Out", "[rows, filters], LoD of X")
                   .intermediate("ColMat", "not written")
                   .required_attr<int32_t>("contextLength", "rows of the window")
                   .range(1)
                   .attr("contextStart", 0, "first row of the window, from the current one")
                   .attr("contextStride", 1, "only 1 is possible")
                   .range(1, 1)
                   .infer(infer_seqconv));
  registry.add(OpDef("fusion_seqexpand_concat_fc")
                   .doc("activation of a matrix product of X[0], concatenated with the other X, "
                        "whose rows are repeated for each row of the sequence")
                   .input("X", "sequences, then matrices with a row for each", Arity::kMany)
                   .input("FCWeight", "[all widths, columns]")
                   .input("FCBias", "[1, columns]", Arity::kOptional)
                   .output("Out", "[rows, columns], LoD of X[0]")
                   .intermediate("FCOut", "not written")
                   .attr("fc_activation", "identity", "activation function")
                   .one_of({"sigmoid", "tanh", "relu", "identity"})
                   .infer(infer_seqexpand_fc));
}

}  // namespace millrace::ops
