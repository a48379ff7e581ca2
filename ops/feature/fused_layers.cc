#include <algorithm>

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

// Fused layers, written by optimizers of inference programs. They have no gradients.
namespace millrace::ops {
namespace {

Status infer_repeated_fc(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const size_t count = ctx.input_count("W");
  if (count < 2) return ctx.error("'W' has {} vars, expected at least 2", count);
  if (ctx.input_count("Bias") != count)
    return ctx.error("'Bias' has {} vars, expected {}, one for each of 'W'",
                     ctx.input_count("Bias"), count);
  if (ctx.has_output("ReluOut") && ctx.output_count("ReluOut") != count - 1)
    return ctx.error("'ReluOut' has {} vars, expected {}, one for each of 'W' but the last",
                     ctx.output_count("ReluOut"), count - 1);
  if (!dims_known(x)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  int64_t width = x.dims[1];
  for (size_t k = 0; k < count; ++k) {
    const VarMeta& w = ctx.input("W", k);
    const VarMeta& bias = ctx.input("Bias", k);
    if (dims_known(w) && (w.rank() != 2 || !dims_agree(w.dims[0], width)))
      return ctx.error("'W' {} has shape {}, expected {} rows", k, dims_text(w.dims), width);
    width = dims_known(w) ? w.dims[1] : -1;
    if (dims_known(bias) && !dims_agree(dims_product(bias.dims), width))
      return ctx.error("'Bias' {} has shape {}, expected {} elements", k, dims_text(bias.dims),
                       width);
    if (k + 1 < count) ctx.set_output("ReluOut", tensor_meta(x.dtype, {x.dims[0], width}), k);
  }
  ctx.set_output("Out", tensor_with_lod_of(x, x.dtype, {x.dims[0], width}));
  return Ok();
}

Status infer_squared_mat_sub(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& y = ctx.input("Y");
  if (!dims_known(x) || !dims_known(y)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Y", 2, 2));
  if (!dims_agree(x.dims[1], y.dims[0]))
    return ctx.error("'X' {} and 'Y' {} cannot be multiplied", dims_text(x.dims),
                     dims_text(y.dims));
  ctx.set_output("SquaredX", x.dtype, x.dims);
  ctx.set_output("SquaredY", x.dtype, y.dims);
  ctx.set_output("SquaredXY", x.dtype, {x.dims[0], y.dims[1]});
  ctx.set_output("Out", x.dtype, {x.dims[0], y.dims[1]});
  return Ok();
}

double squared_mat_sub_flops(const InferContext& ctx) {
  const VarMeta& y = ctx.input("Y");
  const double columns =
      dims_known(y) && y.rank() == 2 && y.dims[1] > 0 ? static_cast<double>(y.dims[1]) : 1.0;
  return 4.0 * element_count(ctx.input("X")) * columns;
}

Status infer_multihead(InferContext& ctx) {
  if (ctx.attr<bool>("transpose_Q") || !ctx.attr<bool>("transpose_K") ||
      ctx.attr<bool>("transpose_V"))
    return ctx.error(
        "attributes 'transpose_Q', 'transpose_K' and 'transpose_V' are {}, {} and {}, expected "
        "false, true and false",
        ctx.attr<bool>("transpose_Q"), ctx.attr<bool>("transpose_K"),
        ctx.attr<bool>("transpose_V"));
  const VarMeta& x = ctx.input("Input");
  const VarMeta& w = ctx.input("W");
  const VarMeta& bias = ctx.input("Bias");
  if (!dims_known(x) || !dims_known(w)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Input", 3, 3));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "W", 3, 4));
  if (!dims_agree(w.dims[0], x.dims[2]) || !dims_agree(w.dims[1], 3))
    return ctx.error("'W' has shape {}, expected [{}, 3, heads * width]", dims_text(w.dims),
                     x.dims[2]);
  const llvm::ArrayRef<int64_t> dims = w.dims;
  const int64_t width = dims_product(dims.drop_front(2));
  const int64_t heads = ctx.attr<int32_t>("head_number");
  if (width > 0 && width % heads != 0)
    return ctx.error("attribute 'head_number' is {}, which does not divide {}", heads, width);
  if (dims_known(bias) && width >= 0 && !dims_agree(dims_product(bias.dims), 3 * width))
    return ctx.error("'Bias' has shape {}, expected [3, {}]", dims_text(bias.dims), width);
  ctx.set_output("Out", tensor_with_lod_of(x, x.dtype, {x.dims[0], x.dims[1], width}));
  return Ok();
}

double multihead_flops(const InferContext& ctx) {
  const VarMeta& x = ctx.input("Input");
  const double rows = dims_known(x) && x.rank() == 3 && x.dims[0] > 0 && x.dims[1] > 0
                          ? static_cast<double>(x.dims[0] * x.dims[1])
                          : 1.0;
  return 2.0 * rows * element_count(ctx.input("W"));
}

Status infer_fc_layernorm(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& w = ctx.input("W");
  const VarMeta& y = ctx.input("Y");
  if (!dims_known(x) || !dims_known(w)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "W", 2, 2));
  const auto columns = static_cast<size_t>(ctx.attr<int32_t>("x_num_col_dims"));
  if (columns >= x.rank())
    return ctx.error("attribute 'x_num_col_dims' is {}, expected less than the rank of 'X' {}",
                     columns, dims_text(x.dims));
  const llvm::ArrayRef<int64_t> dims = x.dims;
  const int64_t width = dims_product(dims.drop_front(columns));
  if (!dims_agree(width, w.dims[0]))
    return ctx.error("'W' has shape {}, expected {} rows for 'X' {}", dims_text(w.dims), width,
                     dims_text(x.dims));
  Dims out(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(columns));
  out.push_back(w.dims[1]);
  if (dims_known(y) && !same_dims(y.dims, out))
    return ctx.error("'Y' has shape {}, expected {}", dims_text(y.dims), dims_text(out));
  const auto axis = static_cast<size_t>(ctx.attr<int32_t>("begin_norm_axis"));
  if (axis >= out.size())
    return ctx.error("attribute 'begin_norm_axis' is {}, expected less than {}", axis, out.size());
  const llvm::ArrayRef<int64_t> result = out;
  const int64_t of_row = dims_product(result.drop_front(axis));
  for (const char* const slot : {"Scale", "Bias1"}) {
    const VarMeta& meta = ctx.input(slot);
    if (ctx.has_input(slot) && dims_known(meta) && !dims_agree(dims_product(meta.dims), of_row))
      return ctx.error("'{}' has shape {}, expected {} elements", slot, dims_text(meta.dims),
                       of_row);
  }
  const VarMeta& bias = ctx.input("Bias0");
  if (ctx.has_input("Bias0") && dims_known(bias) && !dims_agree(dims_product(bias.dims), w.dims[1]))
    return ctx.error("'Bias0' has shape {}, expected {} elements", dims_text(bias.dims), w.dims[1]);
  const int64_t rows = dims_product(result.take_front(axis));
  ctx.set_output("Out", tensor_with_lod_of(x, x.dtype, out));
  ctx.set_output("Mean", x.dtype, {rows});
  ctx.set_output("Variance", x.dtype, {rows});
  return Ok();
}

}  // namespace

void add_feature_fused_layers(OpRegistry& registry) {
  registry.add(OpDef("fusion_repeated_fc_relu")
                   .doc("relu(X * W + Bias), applied several times")
                   .input("X", "[rows, width]")
                   .input("W", "[width, next width]", Arity::kMany)
                   .input("Bias", "one for each of W", Arity::kMany)
                   .intermediate("ReluOut", "results of all but the last", Arity::kAny)
                   .output("Out", "[rows, last width], LoD of X")
                   .infer(infer_repeated_fc));
  registry.add(OpDef("fusion_squared_mat_sub")
                   .doc("scalar * ((X Y)^2 - X^2 Y^2), squares element by element")
                   .input("X", "[rows, inner]")
                   .input("Y", "[inner, columns]")
                   .intermediate("SquaredX", "X^2")
                   .intermediate("SquaredY", "Y^2")
                   .intermediate("SquaredXY", "(X Y)^2")
                   .output("Out", "[rows, columns]")
                   .attr("scalar", 1.0F, "factor")
                   .infer(infer_squared_mat_sub)
                   .flops(squared_mat_sub_flops));
  registry.add(
      OpDef("multihead_matmul")
          .doc("softmax(alpha * Q K' + BiasQK) V for every head, with Q, K and V projected "
               "from Input by W")
          .input("Input", "[batch, rows, width]")
          .input("W", "[width, 3, heads * width of a head], for Q, K and V")
          .input("Bias", "[3, heads * width of a head]")
          .input("BiasQK", "broadcast to [batch, heads, rows, rows]", Arity::kOptional)
          .output("Out", "[batch, rows, heads * width of a head]")
          .attr("transpose_Q", false, "only false is possible")
          .attr("transpose_K", true, "only true is possible")
          .attr("transpose_V", false, "only false is possible")
          .attr("alpha", 1.0F, "factor of the products with K")
          .attr("head_number", 1, "number of heads")
          .range(1)
          .infer(infer_multihead)
          .flops(multihead_flops));
  registry.add(OpDef("fused_fc_elementwise_layernorm")
                   .doc("layer_norm of Y and an activation of X W + Bias0")
                   .input("X", "any rank above x_num_col_dims")
                   .input("W", "[width, columns]")
                   .input("Y", "leading dims of X, then the columns")
                   .input("Bias0", "[columns]", Arity::kOptional)
                   .input("Scale", "factor of each element of a row", Arity::kOptional)
                   .input("Bias1", "summand of each element of a row", Arity::kOptional)
                   .output("Out", "shape of Y")
                   .output("Mean", "of each row", Arity::kOptional)
                   .output("Variance", "of each row", Arity::kOptional)
                   .attr("x_num_col_dims", 1, "leading dims of X to keep")
                   .range(1)
                   .attr("activation_type", "", "activation function; empty: none")
                   .one_of({"", "relu"})
                   .attr("epsilon", 1e-5F, "added to the variance")
                   .range(0)
                   .attr("begin_norm_axis", 1, "first dim of a row")
                   .range(1)
                   .infer(infer_fc_layernorm));
}

}  // namespace millrace::ops
