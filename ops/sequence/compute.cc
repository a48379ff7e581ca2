#include <algorithm>

#include "ops/grad_rules.h"
#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/sequence/lods.h"

// Ops that compute over the rows of LoD sequences.
namespace millrace::ops {
namespace {

Status infer_pool(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 1, 100));
  VarMeta out = x;
  out.dims[0] = x.lod.empty() ? -1 : x.lod.sequences(x.lod.size() - 1);
  out.lod_level = std::max(x.lod_level - 1, 0);
  out.lod = without_last(x.lod);
  if (ctx.attr<std::string>("pooltype") == "MAX")
    ctx.set_output("MaxIndex", DType::kInt32, out.dims);
  ctx.set_output("Out", std::move(out));
  return Ok();
}

StatusOr<std::vector<GradOp>> grad_pool(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("X");
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op("sequence_pool_grad");
  op.input("Out@GRAD", ctx.output_grad("Out")).input("X", ctx.input("X"));
  if (get_attr_or<std::string>(ctx.forward(), "pooltype", "AVERAGE") == "MAX")
    op.input("MaxIndex", ctx.output("MaxIndex"));
  op.output("X@GRAD", std::move(wanted));
  copy_attrs(ctx, op);
  return one_grad_op(std::move(op));
}

Status infer_pool_grad(InferContext& ctx) {
  ctx.copy("X", "X@GRAD");
  return Ok();
}

OpDef& pool_attrs(OpDef& def) {
  return def.attr("pooltype", "AVERAGE", "how the rows of a sequence are combined")
      .one_of({"AVERAGE", "SUM", "SQRT", "LAST", "FIRST", "MAX"})
      .attr("pad_value", 0.0F, "result of an empty sequence");
}

void add_pool(OpRegistry& registry) {
  OpDef forward("sequence_pool");
  forward.doc("one row for each sequence")
      .input("X", "sequences")
      .output("Out", "[sequences, ...], one LoD level less")
      .intermediate("MaxIndex", "row of each maximum, int32")
      .infer(infer_pool)
      .grad(grad_pool)
      .flops(elementwise_flops);
  registry.add(pool_attrs(forward));
  OpDef backward("sequence_pool_grad");
  backward.doc("gradient of sequence_pool")
      .input("X", "sequences")
      .input("Out", "result; not used", Arity::kOptional)
      .input("MaxIndex", "row of each maximum", Arity::kOptional)
      .input("Out@GRAD", "gradient of the result")
      .output("X@GRAD", "shape and LoD of X", Arity::kOptional)
      .infer(infer_pool_grad);
  registry.add(pool_attrs(backward));
}

Status infer_conv(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& filter = ctx.input("Filter");
  if (!dims_known(x) || !dims_known(filter)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Filter", 2, 2));
  const auto length = ctx.attr<int32_t>("contextLength");
  if (x.dims[1] >= 0 && !dims_agree(filter.dims[0], x.dims[1] * length)) {
    return ctx.error(
        "'Filter' has shape {}, expected {} rows, attribute 'contextLength' {} times "
        "the width of 'X' {}",
        dims_text(filter.dims), x.dims[1] * length, length, dims_text(x.dims));
  }
  VarMeta out = x;
  out.dims[1] = filter.dims[1];
  ctx.set_output("Out", std::move(out));
  return Ok();
}

double conv_flops(const InferContext& ctx) {
  const VarMeta& filter = ctx.input("Filter");
  const VarMeta& x = ctx.input("X");
  const double rows =
      dims_known(x) && x.rank() > 0 ? std::max<double>(1.0, static_cast<double>(x.dims[0])) : 1.0;
  return 2.0 * rows * element_count(filter);
}

StatusOr<std::vector<GradOp>> grad_conv(const GradContext& ctx) {
  GradOp op("sequence_conv_grad");
  std::vector<std::string> x = ctx.input_grad("X");
  std::vector<std::string> filter = ctx.input_grad("Filter");
  std::vector<std::string> padding;
  op.input("Filter", ctx.input("Filter"))
      .input("Out@GRAD", ctx.output_grad("Out"))
      .input("X", ctx.input("X"));
  if (get_attr_or<bool>(ctx.forward(), "paddingTrainable", false)) {
    op.input("PaddingData", ctx.input("PaddingData"));
    padding = ctx.input_grad("PaddingData");
  }
  if (x.empty() && filter.empty() && padding.empty()) return std::vector<GradOp>{};
  op.output("Filter@GRAD", std::move(filter)).output("X@GRAD", std::move(x));
  if (!padding.empty()) op.output("PaddingData@GRAD", std::move(padding));
  copy_attrs(ctx, op);
  return one_grad_op(std::move(op));
}

Status infer_conv_grad(InferContext& ctx) {
  ctx.copy("X", "X@GRAD");
  ctx.copy("Filter", "Filter@GRAD");
  ctx.copy("PaddingData", "PaddingData@GRAD");
  return Ok();
}

OpDef& conv_attrs(OpDef& def) {
  return def.attr("paddingTrainable", false, "rows beyond a sequence are PaddingData, not zero")
      .attr("contextLength", 1, "rows of the window")
      .range(1)
      .attr("contextStart", 0, "first row of the window, from the current one")
      .attr("contextStride", 1, "only 1 is possible")
      .range(1, 1);
}

void add_conv(OpRegistry& registry) {
  OpDef forward("sequence_conv");
  forward.doc("product of a window of rows and a matrix, within each sequence")
      .input("X", "sequences [rows, width]")
      .input("PaddingData", "rows before and after a sequence", Arity::kOptional)
      .input("Filter", "[contextLength * width, filters]")
      .output("Out", "[rows, filters], LoD of X")
      .infer(infer_conv)
      .grad(grad_conv)
      .flops(conv_flops);
  registry.add(conv_attrs(forward));
  OpDef backward("sequence_conv_grad");
  backward.doc("gradient of sequence_conv")
      .input("X", "sequences", Arity::kOptional)
      .input("PaddingData", "as in the forward op", Arity::kOptional)
      .input("Filter", "as in the forward op", Arity::kOptional)
      .input("Out@GRAD", "gradient of the result")
      .output("X@GRAD", "gradient of X", Arity::kOptional)
      .output("Filter@GRAD", "gradient of Filter", Arity::kOptional)
      .output("PaddingData@GRAD", "gradient of PaddingData", Arity::kOptional)
      .infer(infer_conv_grad);
  registry.add(conv_attrs(backward));
}

Status infer_topk_pooling(InferContext& ctx) {
  const auto topks = ctx.attr<std::vector<int32_t>>("topks");
  if (topks.empty()) return ctx.error("attribute 'topks' is empty, expected at least one k");
  const auto channels = static_cast<int64_t>(ctx.attr<int32_t>("channel_num"));
  const VarMeta& row = ctx.input("ROW");
  VarMeta out = tensor_with_lod_of(row, ctx.input("X").dtype,
                                   {-1, channels * static_cast<int64_t>(topks.size())});
  if (dims_known(row) && row.rank() > 0) out.dims[0] = row.dims[0];
  ctx.set_output("Out", std::move(out));
  return Ok();
}

}  // namespace

void add_sequence_compute(OpRegistry& registry) {
  add_pool(registry);
  add_conv(registry);
  registry.add(OpDef("sequence_softmax")
                   .doc("softmax within each sequence")
                   .input("X", "sequences [rows, 1] or [rows]")
                   .output("Out", "shape and LoD of X")
                   .infer(infer_unary)
                   .grad({"sequence_softmax_grad", {"Out", "Out@GRAD", "X"}, {"X@GRAD"}, {}, true})
                   .flops(elementwise_flops));
  registry.add(OpDef("sequence_topk_avg_pooling")
                   .doc("mean of the k largest values of each row and channel, for several k")
                   .input("X", "one matrix [channels, rows, columns] for each sequence")
                   .input("ROW", "its LoD has the rows of each matrix")
                   .input("COLUMN", "its LoD has the columns of each matrix")
                   .output("Out", "[rows, channels * number of k]")
                   .intermediate("pos", "columns of the largest values, int32")
                   .required_attr<std::vector<int32_t>>("topks", "every k")
                   .range(1)
                   .required_attr<int32_t>("channel_num", "channels of X")
                   .range(1)
                   .infer(infer_topk_pooling)
                   .grad({"sequence_topk_avg_pooling_grad",
                          {"COLUMN", "Out@GRAD", "ROW", "X", "pos"},
                          {"X@GRAD"},
                          {}}));
}

}  // namespace millrace::ops
