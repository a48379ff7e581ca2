#include <algorithm>

#include "ops/grad_rules.h"
#include "ops/infer_helpers.h"
#include "ops/int8_attrs.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

// Products with a bias, and ops that fuse two functions.
namespace millrace::ops {
namespace fused {
namespace {

using Strings = std::vector<std::string>;

Status infer_batch_fc(InferContext& ctx) {
  const VarMeta& x = ctx.input("Input");
  const VarMeta& w = ctx.input("W");
  if (!dims_known(x) || !dims_known(w)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Input", 3, 3));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "W", 3, 3));
  if (!dims_agree(x.dims[0], w.dims[0]) || !dims_agree(x.dims[2], w.dims[1])) {
    return ctx.error("'W' has shape {}, expected [slots, width, columns] for 'Input' {}",
                     dims_text(w.dims), dims_text(x.dims));
  }
  ctx.set_output("Out", x.dtype, {x.dims[0], x.dims[1], w.dims[2]});
  return Ok();
}

Status infer_bilinear(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& y = ctx.input("Y");
  const VarMeta& weight = ctx.input("Weight");
  if (!dims_known(x) || !dims_known(y) || !dims_known(weight)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Y", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Weight", 3, 3));
  if (!dims_agree(x.dims[0], y.dims[0]))
    return ctx.error("'X' has shape {} and 'Y' {}, expected the same number of rows",
                     dims_text(x.dims), dims_text(y.dims));
  if (!dims_agree(weight.dims[1], x.dims[1]) || !dims_agree(weight.dims[2], y.dims[1])) {
    return ctx.error("'Weight' has shape {}, expected [columns, {}, {}]", dims_text(weight.dims),
                     x.dims[1], y.dims[1]);
  }
  ctx.set_output("Out", with_offsets_of(tensor_meta(x.dtype, {x.dims[0], weight.dims[0]}), x));
  return Ok();
}

double bilinear_flops(const InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const double rows =
      dims_known(x) && x.rank() > 0 && x.dims[0] > 0 ? static_cast<double>(x.dims[0]) : 1.0;
  return 2.0 * rows * element_count(ctx.input("Weight"));
}

// padding_weights: the original's kernel wants 4 more rows and columns than there are weights.
Status infer_fc(InferContext& ctx, int64_t padding) {
  const VarMeta& x = ctx.input("Input");
  const VarMeta& w = ctx.input("W");
  if (!dims_known(x) || !dims_known(w)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "W", 2, 2));
  const auto columns = static_cast<size_t>(ctx.attr<int32_t>("in_num_col_dims"));
  if (columns >= x.rank()) {
    return ctx.error("attribute 'in_num_col_dims' is {}, expected less than the rank of 'Input' {}",
                     columns, dims_text(x.dims));
  }
  const llvm::ArrayRef<int64_t> dims = x.dims;
  const int64_t width = dims_product(dims.drop_front(columns));
  const int64_t rows = w.dims[0] < 0 ? -1 : w.dims[0] - padding;
  if (!dims_agree(width, rows)) {
    return ctx.error("'W' has shape {}, expected {} rows for 'Input' {}", dims_text(w.dims), width,
                     dims_text(x.dims));
  }
  Dims out(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(columns));
  out.push_back(w.dims[1] < 0 ? -1 : w.dims[1] - padding);
  VarMeta meta = with_dims(x, out);
  const VarMeta& residual = ctx.input("ResidualData");
  if (ctx.has_input("ResidualData") && dims_known(residual)) {
    bool same = residual.rank() == out.size();
    for (size_t i = 0; same && i < out.size(); ++i) same = dims_agree(residual.dims[i], out[i]);
    if (!same)
      return ctx.error("'ResidualData' has shape {}, expected {}", dims_text(residual.dims),
                       dims_text(out));
  }
  if (ctx.attr<bool>("residual_first")) {
    meta.lod_level = residual.lod_level;
    meta.lod = residual.lod;
  } else if (ctx.attr<bool>("drops_lod")) {
    meta = without_offsets(std::move(meta));
  }
  ctx.set_output("Out", std::move(meta));
  return Ok();
}

double fc_flops(const InferContext& ctx) {
  const VarMeta& w = ctx.input("W");
  const double columns =
      dims_known(w) && w.rank() > 1 && w.dims[1] > 0 ? static_cast<double>(w.dims[1]) : 1.0;
  return 2.0 * element_count(ctx.input("Input")) * columns;
}

// One of the two functions is binary. The outer function is listed first.
Status infer_fused_op(InferContext& ctx) {
  const auto functions = ctx.attr<Strings>("functor_list");
  if (functions.size() != 2) {
    return ctx.error("attribute 'functor_list' has {} entries, expected 2", functions.size());
  }
  const bool binary_outside = llvm::StringRef(functions[0]).startswith("elementwise_");
  if (binary_outside == llvm::StringRef(functions[1]).startswith("elementwise_")) {
    return ctx.error("attribute 'functor_list' is '{}', '{}', expected one elementwise op",
                     functions[0], functions[1]);
  }
  MILLRACE_RETURN_IF_ERROR(infer_broadcast(ctx, "X", "Y", "Out", ctx.attr<int32_t>("axis")));
  // The intermediate result is f(Y) if the binary function is the outer one, else it has the shape
  // of Out.
  if (binary_outside) {
    ctx.copy("Y", "IntermediateOut");
    return Ok();
  }
  return infer_broadcast(ctx, "X", "Y", "IntermediateOut", ctx.attr<int32_t>("axis"));
}

StatusOr<std::vector<GradOp>> grad(const GradContext& ctx) {
  std::vector<std::string> x = ctx.input_grad("X");
  std::vector<std::string> y = ctx.input_grad("Y");
  if (x.empty() && y.empty()) return std::vector<GradOp>{};
  const bool saved = get_attr_or<bool>(ctx.forward(), "save_intermediate_out", false);
  GradOp op("fused_elemwise_activation_grad");
  op.input("IntermediateOut", saved ? ctx.output("IntermediateOut") : std::vector<std::string>{})
      .input("Out", ctx.output("Out"))
      .input("Out@GRAD", ctx.output_grad("Out"))
      .input("X", ctx.input("X"))
      .input("Y", ctx.input("Y"))
      .output("IntermediateOut@GRAD",
              saved ? ctx.output_grad("IntermediateOut") : std::vector<std::string>{})
      .output("X@GRAD", std::move(x))
      .output("Y@GRAD", std::move(y));
  copy_attrs(ctx, op);
  // the original stores the names of the gradient functions
  for (auto& [name, value] : op.attrs) {
    if (name != "functor_list") continue;
    auto functions = get_attr_or<Strings>(ctx.forward(), "functor_list", {});
    for (std::string& function : functions) function += "_grad";
    value = make_attr(std::move(functions));
  }
  return one_grad_op(std::move(op));
}

Status infer_fused_grad(InferContext& ctx) {
  ctx.copy(ctx.has_input("X") ? "X" : "Out", "X@GRAD");
  ctx.copy("Y", "Y@GRAD");
  ctx.copy("IntermediateOut", "IntermediateOut@GRAD");
  return Ok();
}

OpDef& fused_attrs(OpDef& def) {
  return def.attr("axis", -1, "dim of X where Y starts; -1: at the end")
      .range(-1)
      .attr("scale", 0.0F, "factor, if one of the functions is scale")
      .attr("save_intermediate_out", false, "keep IntermediateOut for the gradient")
      .attr("functor_list", Strings{}, "two functions, the outer one first");
}

void add_fused_pair(OpRegistry& registry) {
  OpDef forward("fused_elemwise_activation");
  forward.doc("composition of an elementwise op and a function of one variable")
      .input("X", "any shape")
      .input("Y", "shape of X, or one that is broadcast to it")
      .output("Out", "shape of X")
      .intermediate("IntermediateOut", "result of the inner function")
      .infer(infer_fused_op)
      .grad(grad)
      .flops(elementwise_flops);
  registry.add(fused_attrs(forward));
  OpDef backward("fused_elemwise_activation_grad");
  backward.doc("gradient of fused_elemwise_activation")
      .input("X", "as in the forward op", Arity::kOptional)
      .input("Y", "as in the forward op", Arity::kOptional)
      .input("Out", "result", Arity::kOptional)
      .input("IntermediateOut", "result of the inner function", Arity::kOptional)
      .input("Out@GRAD", "gradient of the result")
      .output("X@GRAD", "gradient of X", Arity::kOptional)
      .output("Y@GRAD", "gradient of Y", Arity::kOptional)
      .output("IntermediateOut@GRAD", "gradient of the inner result", Arity::kOptional)
      .infer(infer_fused_grad);
  registry.add(fused_attrs(backward));
}

// Slots and attributes of a product with weights into which passes have fused the ops after it.
OpDef fused_product(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("Input", "any rank above in_num_col_dims")
      .input("W", "[width, columns]")
      .input("Bias", "[columns]", Arity::kOptional)
      .input("ResidualData", "summand of the shape of Out; of rewritten programs", Arity::kOptional)
      .output("Out", "leading dims of Input, then the columns")
      .attr("in_num_col_dims", 1, "leading dims of Input to keep")
      .range(1)
      .attr("activation_type", "", "activation function; empty: none")
      .one_of({"", "relu", "gelu", "gelu_tanh", "sigmoid", "tanh"})
      .attr("residual_first", false, "Out has the LoD of ResidualData, not of Input")
      .attr("drops_lod", false, "Out does not have the LoD of Input, as the result of matmul_v2")
      .flops(fc_flops);
  return def;
}

OpDef fc() {
  OpDef def =
      fused_product("fc", "activation(Input * W + Bias + ResidualData), Input seen as a matrix");
  def.attr("padding_weights", false, "W has 4 surplus rows and columns")
      .attr("Scale_in", 1.0F, "no effect on floating point")
      .attr("Scale_weights", std::vector<float>{1.0F}, "no effect on floating point")
      .attr("Scale_out", 1.0F, "no effect on floating point")
      .attr("force_fp32_output", false, "no effect on floating point")
      .infer([](InferContext& ctx) {
        return infer_fc(ctx, ctx.attr<bool>("padding_weights") ? 4 : 0);
      });
  return def;
}

// What pass int8-products makes of quantization, product and dequantization.
OpDef int8_fc() {
  OpDef def = fused_product("int8_fc", "fc of Input and W rounded to 8-bit integers");
  add_int8_attrs(def).infer([](InferContext& ctx) {
    MILLRACE_RETURN_IF_ERROR(infer_fc(ctx, 0));
    const VarMeta& w = ctx.input("W");
    return infer_int8_scales(ctx, dims_known(w) ? w.dims[1] : -1);
  });
  return def;
}

}  // namespace
}  // namespace fused

void add_feature_fused(OpRegistry& registry) {
  using namespace fused;
  add_fused_pair(registry);
  registry.add(OpDef("batch_fc")
                   .doc("Out[s] = Input[s] * W[s] + Bias[s] for every slot s")
                   .input("Input", "[slots, rows, width]")
                   .input("W", "[slots, width, columns]")
                   .input("Bias", "[slots, columns]")
                   .output("Out", "[slots, rows, columns]")
                   .infer(infer_batch_fc)
                   .grad({"batch_fc_grad",
                          {"Bias", "Input", "Out@GRAD", "W"},
                          {"Bias@GRAD", "Input@GRAD", "W@GRAD"},
                          {}}));
  registry.add(OpDef("bilinear_tensor_product")
                   .doc("Out[:, k] = rows of X times Weight[k] times rows of Y")
                   .input("X", "[rows, m]")
                   .input("Y", "[rows, n]")
                   .input("Weight", "[columns, m, n]")
                   .input("Bias", "[1, columns]", Arity::kOptional)
                   .output("Out", "[rows, columns]")
                   .infer(infer_bilinear)
                   .flops(bilinear_flops)
                   .grad(without_offsets({"bilinear_tensor_product_grad",
                                          {"Out@GRAD", "Weight", "X", "Y"},
                                          {"Bias@GRAD", "Weight@GRAD", "X@GRAD", "Y@GRAD"}})));
  registry.add(fc());
  registry.add(int8_fc());
}

}  // namespace millrace::ops
