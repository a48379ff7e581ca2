// Gradient ops that PIR has.

#include <algorithm>

#include "interchange/pir/rows.h"
#include "interchange/source_ops.h"

namespace millrace::interchange::pir {
namespace {

constexpr const char* kConvGradAttrs =
    "strides:i32s paddings:i32s padding_algorithm:str dilations:i32s groups:i32 data_format:str "
    "!use_cudnn";
constexpr const char* kTransposeGradAttrs =
    "strides:i32s paddings:i32s output_padding:i32s padding_algorithm:str groups:i32 "
    "dilations:i32s data_format:str !use_cudnn";
constexpr const char* kFilterGrads = "Input@GRAD? Filter@GRAD?";
constexpr const char* kUnary = "X Out@GRAD !Out";
constexpr const char* kByResult = "Out Out@GRAD !X";

constexpr Row kGradientRows[] = {
    {"abs_grad", "abs_grad", kUnary, "", "X@GRAD"},
    {"acos_grad", "acos_grad", kUnary, "", "X@GRAD"},
    {"asin_grad", "asin_grad", kUnary, "", "X@GRAD"},
    {"atan_grad", "atan_grad", kUnary, "", "X@GRAD"},
    {"batch_norm_grad", "batch_norm_grad",
     "X Scale? Bias? MeanOut? VarianceOut? SavedMean SavedVariance ReserveSpace? Y@GRAD !Mean "
     "!Variance",
     "momentum:f32 epsilon:f32 data_format<data_layout:str is_test:bool use_global_stats:bool "
     "trainable_statistics:bool",
     "X@GRAD? Scale@GRAD? Bias@GRAD?"},
    {"bce_loss_grad", "bce_loss_grad", "X Label Out@GRAD", "", "X@GRAD"},
    {"bmm_grad", "bmm_grad", "X Y Out@GRAD", "", "X@GRAD? Y@GRAD?"},
    {"brelu_grad", "hardtanh_grad", kUnary, "t_min:f32 t_max:f32", "X@GRAD"},
    {"ceil_grad", "ceil_grad", "Out@GRAD !X !Out", "", "X@GRAD"},
    {"clip_grad", "clip_grad", "X Out@GRAD @min:f32|Min @max:f32|Max", "", "X@GRAD"},
    {"conv2d_grad", "conv2d_grad", "Input Filter Output@GRAD", kConvGradAttrs, kFilterGrads},
    {"conv2d_transpose_grad", "conv2d_transpose_grad", "Input Filter Output@GRAD @output_size:i64s",
     kTransposeGradAttrs, kFilterGrads},
    {"conv3d_grad", "conv3d_grad", "Input Filter Output@GRAD", kConvGradAttrs, kFilterGrads},
    {"cos_grad", "cos_grad", kUnary, "", "X@GRAD"},
    {"cosh_grad", "cosh_grad", kUnary, "", "X@GRAD"},
    {"depthwise_conv2d_grad", "depthwise_conv2d_grad", "Input Filter Output@GRAD", kConvGradAttrs,
     kFilterGrads},
    {"dot_grad", "dot_grad", "X Y Out@GRAD", "", "X@GRAD? Y@GRAD?"},
    {"dropout_grad", "dropout_grad", "Mask Out@GRAD @dropout_prob:f32",
     "is_test:bool mode<dropout_implementation:str", "X@GRAD"},
    {"elu_grad", "elu_grad", "X Out Out@GRAD", "alpha:f32", "X@GRAD"},
    {"erf_grad", "erf_grad", kUnary, "", "X@GRAD"},
    {"exp_grad", "exp_grad", kByResult, "", "X@GRAD"},
    {"expand_grad", "tile_grad", "X Out@GRAD @expand_times:i64s", "", "X@GRAD"},
    {"expand_v2_grad", "expand_grad", "X Out@GRAD @shape:i64s", "", "X@GRAD"},
    {"floor_grad", "floor_grad", "Out@GRAD !X !Out", "", "X@GRAD"},
    {"gather_nd_grad", "gather_nd_grad", "X Index Out@GRAD", "", "X@GRAD"},
    {"gelu_grad", "gelu_grad", kUnary, "approximate:bool", "X@GRAD"},
    {"group_norm_grad", "group_norm_grad", "X Scale? Bias? Y Mean Variance Y@GRAD",
     "epsilon:f64 groups:i32 data_format<data_layout:str", "X@GRAD? Scale@GRAD? Bias@GRAD?"},
    {"gru_grad", "gru_grad",
     "Input H0? Weight Bias? BatchGate BatchResetHiddenPrev BatchHidden Hidden Hidden@GRAD",
     "activation:str gate_activation:str is_reverse:bool origin_mode:bool is_test:bool=false",
     "Input@GRAD? H0@GRAD? Weight@GRAD? Bias@GRAD?"},
    {"gru_unit_grad", "gru_unit_grad",
     "Input HiddenPrev Weight Bias? Gate ResetHiddenPrev Hidden@GRAD",
     "activation:i32 gate_activation:i32 origin_mode:bool",
     "Input@GRAD? HiddenPrev@GRAD? Weight@GRAD? Bias@GRAD?"},
    {"hard_shrink_grad", "hardshrink_grad", kUnary, "threshold:f32", "X@GRAD"},
    {"hard_sigmoid_grad", "hardsigmoid_grad", kByResult, "slope:f32 offset:f32", "X@GRAD"},
    {"hinge_loss_grad", "hinge_loss_grad", "Logits Labels Loss@GRAD", "", "Logits@GRAD"},
    {"huber_loss_grad", "huber_loss_grad", "Residual Out@GRAD !X !Y", "delta:f32",
     "X@GRAD? Y@GRAD?"},
    {"instance_norm_grad", "instance_norm_grad", "X Scale? Bias? SavedMean SavedVariance Y@GRAD",
     "epsilon:f32", "X@GRAD? Scale@GRAD? Bias@GRAD?"},
    {"kldiv_loss_grad", "kldiv_loss_grad", "X Target Loss@GRAD",
     "reduction:str log_target:bool=false", "X@GRAD"},
    {"label_smooth_grad", "label_smooth_grad", "Out@GRAD", "epsilon:f32", "X@GRAD"},
    {"layer_norm_grad", "layer_norm_grad", "X Scale? Bias? Mean Variance Y@GRAD",
     "epsilon:f32 begin_norm_axis:i32", "X@GRAD? Scale@GRAD? Bias@GRAD?"},
    {"leaky_relu_grad", "leaky_relu_grad", kUnary, "negative_slope<alpha:f64", "X@GRAD"},
    {"log10_grad", "log10_grad", kUnary, "", "X@GRAD"},
    {"log1p_grad", "log1p_grad", kUnary, "", "X@GRAD"},
    {"log2_grad", "log2_grad", kUnary, "", "X@GRAD"},
    {"log_grad", "log_grad", kUnary, "", "X@GRAD"},
    {"log_loss_grad", "log_loss_grad", "Predicted Labels Loss@GRAD", "epsilon:f32",
     "Predicted@GRAD"},
    {"log_softmax_grad", "log_softmax_grad", kByResult, "axis:i32", "X@GRAD"},
    {"logsigmoid_grad", "logsigmoid_grad", kUnary, "", "X@GRAD"},
    {"lrn_grad", "lrn_grad", "X Out MidOut Out@GRAD",
     "n:i32 k:f32 alpha:f32 beta:f32 data_format:str", "X@GRAD"},
    {"lstm_grad", "lstm_grad",
     "Input H0? C0? Weight Bias Hidden Cell BatchGate BatchCellPreAct Hidden@GRAD",
     "use_peepholes:bool is_reverse:bool is_test:bool=false gate_activation:str "
     "cell_activation:str candidate_activation:str",
     "Input@GRAD? H0@GRAD? C0@GRAD? Weight@GRAD? Bias@GRAD?"},
    {"matmul_v2_grad", "matmul_grad", "X Y Out@GRAD",
     "transpose_x<trans_x:bool transpose_y<trans_y:bool", "X@GRAD? Y@GRAD?"},
    {"maxout_grad", "maxout_grad", "X Out Out@GRAD", "groups:i32 axis:i32", "X@GRAD"},
    {"mean_grad", "mean_all_grad", "X Out@GRAD", "", "X@GRAD"},
    {"mish_grad", "mish_grad", kUnary, "lambda<threshold:f32", "X@GRAD"},
    {"nll_loss_grad", "nll_loss_grad", "X Label Weight? Total_weight Out@GRAD",
     "ignore_index:i64 reduction:str", "X@GRAD"},
    {"norm_grad", "norm_grad", "X Norm Out@GRAD", "axis:i32 epsilon:f32 is_test:bool=false",
     "X@GRAD"},
    {"p_norm_grad", "p_norm_grad", "X Out Out@GRAD",
     "porder:f32 axis:i32 epsilon:f32 keepdim:bool asvector:bool", "X@GRAD"},
    {"pad3d_grad", "pad3d_grad", "X Out@GRAD @paddings:i64s|Paddings",
     "mode:str pad_value<value:f64 data_format:str", "X@GRAD"},
    {"pool2d_grad", "pool2d_grad", "X Out Out@GRAD @ksize:i64s",
     "strides:i64s paddings:i64s ceil_mode:bool exclusive:bool data_format:str pooling_type:str "
     "global_pooling:bool adaptive:bool padding_algorithm:str !use_cudnn",
     "X@GRAD"},
    {"prelu_grad", "prelu_grad", "X Alpha Out@GRAD", "data_format:str mode:str",
     "X@GRAD? Alpha@GRAD?"},
    {"reciprocal_grad", "reciprocal_grad", kByResult, "", "X@GRAD"},
    {"relu_grad", "relu_grad", kByResult, "", "X@GRAD"},
    {"round_grad", "round_grad", "Out@GRAD !X !Out", "", "X@GRAD"},
    {"row_conv_grad", "row_conv_grad", "X Filter Out@GRAD", "", "X@GRAD? Filter@GRAD?"},
    {"rsqrt_grad", "rsqrt_grad", kByResult, "", "X@GRAD"},
    {"selu_grad", "selu_grad", kByResult, "scale:f32 alpha:f32", "X@GRAD"},
    {"sequence_conv_grad", "sequence_conv_grad", "X PaddingData? Filter Out@GRAD",
     "context_length<contextLength:i32 padding_trainable<paddingTrainable:bool "
     "context_start<contextStart:i32 context_stride<contextStride:i32",
     "X@GRAD? PaddingData@GRAD? Filter@GRAD?"},
    {"sequence_expand_grad", "sequence_expand_grad", "X Y Out@GRAD", "ref_level:i32", "X@GRAD"},
    {"sequence_pool_grad", "sequence_pool_grad", "X MaxIndex? Out@GRAD",
     "is_test:bool=false pooltype:str pad_value:f32", "X@GRAD"},
    {"sequence_softmax_grad", "sequence_softmax_grad", "X Out Out@GRAD", "!data_format", "X@GRAD"},
    {"sigmoid_cross_entropy_with_logits_grad", "sigmoid_cross_entropy_with_logits_grad",
     "X Label - Out@GRAD", "normalize:bool ignore_index:i32", "X@GRAD"},
    {"sigmoid_grad", "sigmoid_grad", kByResult, "", "X@GRAD"},
    {"silu_grad", "silu_grad", "X Out Out@GRAD", "", "X@GRAD"},
    {"sin_grad", "sin_grad", kUnary, "", "X@GRAD"},
    {"sinh_grad", "sinh_grad", kUnary, "", "X@GRAD"},
    {"softmax_grad", "softmax_grad", "Out Out@GRAD", "axis:i32 !data_format", "X@GRAD"},
    {"softmax_with_cross_entropy_grad", "cross_entropy_with_softmax_grad",
     "Label Softmax Loss@GRAD",
     "soft_label:bool use_softmax:bool numeric_stable_mode:bool ignore_index:i32 axis:i32",
     "Logits@GRAD"},
    {"softplus_grad", "softplus_grad", kUnary, "beta:f64 threshold:f64", "X@GRAD"},
    {"softshrink_grad", "softshrink_grad", kUnary, "threshold<lambda:f32", "X@GRAD"},
    {"softsign_grad", "softsign_grad", kUnary, "", "X@GRAD"},
    {"sqrt_grad", "sqrt_grad", kByResult, "", "X@GRAD"},
    {"square_grad", "square_grad", kUnary, "", "X@GRAD"},
    {"squared_l2_norm_grad", "squared_l2_norm_grad", "X Out@GRAD", "", "X@GRAD"},
    {"stanh_grad", "stanh_grad", kUnary, "scale_a:f32 scale_b:f32", "X@GRAD"},
    {"tan_grad", "tan_grad", kUnary, "", "X@GRAD"},
    {"tanh_grad", "tanh_grad", kByResult, "", "X@GRAD"},
    {"tanh_shrink_grad", "tanh_shrink_grad", kUnary, "", "X@GRAD"},
    {"thresholded_relu_grad", "thresholded_relu_grad", kUnary, "threshold:f32 value:f32=0",
     "X@GRAD"},
    {"transpose2_grad", "transpose_grad", "Out@GRAD !XShape", "perm<axis:i32s !data_format",
     "X@GRAD"},
    {"transpose_grad", "transpose_grad", "Out@GRAD !X", "perm<axis:i32s !data_format", "X@GRAD"},
    {"where_grad", "where_grad", "Condition X Y Out@GRAD", "", "X@GRAD? Y@GRAD?"},
};

// The result of a gradient op for one var; none if the program does not compute it.
Value gradient_of(OpContext& c, const char* slot, const Value& var) {
  return c.computes(slot) ? result_of(var.type()) : Value{};
}

struct BinaryGradient {
  const char* type;
  const char* name;
  bool reads_result;  // the gradient of PIR has the operand Out
  bool has_axis;
};

constexpr BinaryGradient kBinaryGradients[] = {
    {"elementwise_add_grad", "add_grad", false, true},
    {"elementwise_sub_grad", "subtract_grad", false, true},
    {"elementwise_mul_grad", "multiply_grad", false, true},
    {"elementwise_div_grad", "divide_grad", true, true},
    {"elementwise_max_grad", "maximum_grad", false, false},
    {"elementwise_min_grad", "minimum_grad", false, false},
    {"elementwise_pow_grad", "elementwise_pow_grad", false, false},
};

// The smaller operand has axes of extent 1 in PIR, as in the forward op; its gradient has as well.
Status binary_gradient(OpContext& c) {
  MILLRACE_ASSIGN_OR_RETURN(const Alignment alignment, read_alignment(c));
  const std::string type = c.op().type().str();
  const auto* const row =
      std::find_if(std::begin(kBinaryGradients), std::end(kBinaryGradients),
                   [&](const BinaryGradient& known) { return type == known.type; });
  Value x = c.in("X");
  Value y = c.in("Y");
  Value& smaller = alignment.is_x ? x : y;
  if (!alignment.axes.empty()) smaller = c.unsqueeze(smaller, alignment.axes);
  c.note_input_slot("Out");
  std::vector<Value> inputs = {x, y};
  if (row->reads_result) inputs.push_back(c.in("Out"));
  inputs.push_back(c.in("Out@GRAD"));
  std::vector<Attr> attrs;
  if (row->has_axis) attrs.push_back(of_i32("axis", -1));
  std::vector<Value> results =
      c.nodes(row->name, inputs, attrs, {gradient_of(c, "X@GRAD", x), gradient_of(c, "Y@GRAD", y)});
  for (const bool is_x : {true, false}) {
    Value& result = results[is_x ? 0 : 1];
    const char* const slot = is_x ? "X@GRAD" : "Y@GRAD";
    if (!c.computes(slot)) continue;
    if (is_x == alignment.is_x && !alignment.axes.empty())
      result = c.squeeze(result, alignment.axes);
    c.set(slot, result);
  }
  return Ok();
}

// The product of matrices. \param shape_x, shape_y  values with the extents of the operands
void set_product_gradients(OpContext& c, const Value& x, const Value& y, const Value& out_grad,
                           const Value& shape_x, const Value& shape_y) {
  const std::vector<Value> results =
      c.nodes("matmul_grad", {x, y, out_grad},
              {of_bool("transpose_x", false), of_bool("transpose_y", false)},
              {gradient_of(c, "X@GRAD", x), gradient_of(c, "Y@GRAD", y)});
  const auto set = [&](const char* slot, const Value& result, const Value& shape) {
    if (!c.computes(slot)) return;
    const bool is_matrix = shape.type().dims.size() == 2;
    c.set(slot, is_matrix ? result : c.node("reshape_grad", {shape, result}, {}, shape.type()));
  };
  set("X@GRAD", results[0], shape_x);
  set("Y@GRAD", results[1], shape_y);
}

Status mul_gradient(OpContext& c) {
  const auto x_rows = c.attr<int64_t>("x_num_col_dims");
  const auto y_rows = c.attr<int64_t>("y_num_col_dims");
  const Value x = c.in("X");
  const Value y = c.in("Y");
  set_product_gradients(c, c.as_matrix(x, x_rows), c.as_matrix(y, y_rows),
                        c.as_matrix(c.in("Out@GRAD"), x_rows), x, y);
  return Ok();
}

Status matmul_gradient(OpContext& c) {
  const Value x = c.in("X");
  const Value y = c.in("Y");
  Value out_grad = c.in("Out@GRAD");
  const auto alpha = c.attr<float>("alpha");
  if (alpha != 1.0F) {
    out_grad = c.node("scale", {out_grad, c.full(alpha, DType::kFloat32)},
                      {of_f32("bias", 0), of_bool("bias_after_scale", true)}, out_grad.type());
  }
  const std::vector<Value> results =
      c.nodes("matmul_grad", {x, y, out_grad},
              {of_bool("transpose_x", c.attr<bool>("transpose_X")),
               of_bool("transpose_y", c.attr<bool>("transpose_Y"))},
              {gradient_of(c, "X@GRAD", x), gradient_of(c, "Y@GRAD", y)});
  c.note_output_slot("X@GRAD");
  c.note_output_slot("Y@GRAD");
  if (c.computes("X@GRAD")) c.set("X@GRAD", results[0]);
  if (c.computes("Y@GRAD")) c.set("Y@GRAD", results[1]);
  return Ok();
}

// Gradients of rows are written as dense ones. As in the original, the padding row has one then.
Status lookup_gradient(OpContext& c) {
  MILLRACE_RETURN_IF_ERROR(read_table_attrs(c));
  const bool is_sparse = c.attr<bool>("is_sparse");
  const auto padding = c.attr<int64_t>("padding_idx");
  Value ids = c.in("Ids");
  if (c.op().type() == "lookup_table_grad") ids = c.squeeze(ids, {c.rank("Ids") - 1});
  const Value table = c.in("W");
  c.set("W@GRAD", c.node("embedding_grad", {ids, table, c.in("Out@GRAD")},
                         {of_i64("padding_idx", is_sparse ? -1 : padding)}, table.type()));
  return Ok();
}

// reshape2, squeeze2 and others keep the extents of the operand in XShape; the older ops have X.
Status reshape_gradient(OpContext& c) {
  c.ignore({"shape", "axes", "axis", "start_axis", "stop_axis"});
  for (const char* slot : {"ShapeTensor", "Shape", "AxesTensor", "AxesTensorList"})
    c.note_input_slot(slot);
  const Value x = c.has("XShape") ? c.shaped_as("XShape") : c.in("X");
  c.set("X@GRAD", c.node("reshape_grad", {x, c.in("Out@GRAD")}, {}, x.type()));
  return Ok();
}

Status reduce_gradient(OpContext& c) {
  const std::string type = c.op().type().str();
  const int64_t rank = c.rank("X");
  std::vector<int64_t> axes = c.ints("dim");
  for (int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
  const bool is_all = c.attr<bool>("reduce_all") || static_cast<int64_t>(axes.size()) == rank;
  if (is_all) axes.clear();
  const bool is_extreme = type == "reduce_max_grad" || type == "reduce_min_grad";
  if (is_extreme && rank > 4 && axes.size() > 1)
    return c.refuse(
        "extremes over several of more than four axes: release 3 computes wrong gradients");
  c.note_input_slot("Out");
  c.ignore({"in_dtype", "out_dtype"});
  const Value x = c.in("X");
  const Value grad = c.in("Out@GRAD");
  if (grad.type().dtype != x.type().dtype) return c.refuse("a gradient of another element type");
  std::vector<Value> inputs = {x};
  if (type != "reduce_sum_grad" && type != "reduce_mean_grad") inputs.push_back(c.in("Out"));
  inputs.push_back(grad);
  inputs.push_back(c.int_list(axes));
  const std::string name = type.substr(std::string("reduce_").size());
  c.set("X@GRAD",
        c.node(name, inputs,
               {of_bool("keepdim", c.attr<bool>("keep_dim")), of_bool("reduce_all", is_all)},
               x.type()));
  return Ok();
}

Status slice_gradient(OpContext& c) {
  for (const char* slot : {"StartsTensor", "EndsTensor", "StartsTensorList", "EndsTensorList"})
    if (c.has(slot)) return c.refuse("positions given as tensors");
  const Value x = c.in("Input");
  const Value starts = c.int_list(c.ints("starts"));
  const Value ends = c.int_list(c.ints("ends"));
  c.set("Input@GRAD",
        c.node("slice_grad", {x, c.in("Out@GRAD"), starts, ends}, slice_attrs(c), x.type()));
  return Ok();
}

// One gradient for each operand of a list.
Status list_gradient(OpContext& c) {
  const std::vector<Value> operands = c.ins("X");
  const Value list = c.list(operands);
  const bool is_stack = c.op().type() == "stack_grad";
  const Value grad = c.in(is_stack ? "Y@GRAD" : "Out@GRAD");
  if (c.has("AxisTensor")) return c.refuse("an axis given as a tensor");
  const auto axis = c.attr<int64_t>("axis");
  std::vector<Value> inputs = {list, grad};
  std::vector<Attr> attrs;
  if (is_stack)
    attrs.push_back(of_i32("axis", axis));
  else
    inputs.push_back(c.full(static_cast<double>(axis), DType::kInt32));
  const std::vector<Value> parts = c.parts(
      c.nodes(is_stack ? "stack_grad" : "concat_grad", inputs, attrs, {results_of(list.types)})[0]);
  c.note_output_slot("X@GRAD");
  for (size_t k = 0; k < parts.size(); ++k)
    if (c.computes("X@GRAD", k)) c.set("X@GRAD", parts[k], k);
  return Ok();
}

// Along other axes than the first, release 3 adds the gradients of a position that occurs twice;
// the original keeps one of them.
Status gather_gradient(OpContext& c) {
  if (c.has("Axis") || c.attr<int64_t>("axis") != 0)
    return c.refuse(
        "gradients along another axis than the first, which release 3 computes differently");
  c.ignore({"overwrite"});
  const Value x = c.in("X");
  c.set("X@GRAD",
        c.node("gather_grad", {x, c.in("Index"), c.in("Out@GRAD"), c.full(0, DType::kInt32)}, {},
               x.type()));
  return Ok();
}

Status pow_gradient(OpContext& c) {
  if (c.has("FactorTensor")) return c.refuse("a factor given as a tensor");
  const Value x = c.in("X");
  c.note_input_slot("Out");
  c.set("X@GRAD", c.node("pow_grad", {x, c.in("Out@GRAD")}, {of_f32("y", c.attr<float>("factor"))},
                         x.type()));
  return Ok();
}

}  // namespace

void add_gradient_ops(Converters& table) {
  for (const Row& row : kGradientRows) table.rows[row.type] = &row;
  for (const BinaryGradient& row : kBinaryGradients) table.functions[row.type] = binary_gradient;
  table.functions["mul_grad"] = mul_gradient;
  table.functions["matmul_grad"] = matmul_gradient;
  table.functions["lookup_table_grad"] = table.functions["lookup_table_v2_grad"] = lookup_gradient;
  for (const char* type :
       {"reshape_grad", "reshape2_grad", "squeeze_grad", "squeeze2_grad", "unsqueeze_grad",
        "unsqueeze2_grad", "flatten_grad", "flatten2_grad", "flatten_contiguous_range_grad"})
    table.functions[type] = reshape_gradient;
  for (const char* type : {"reduce_sum_grad", "reduce_mean_grad", "reduce_max_grad",
                           "reduce_min_grad", "reduce_prod_grad"})
    table.functions[type] = reduce_gradient;
  table.functions["slice_grad"] = slice_gradient;
  table.functions["concat_grad"] = table.functions["stack_grad"] = list_gradient;
  table.functions["gather_grad"] = gather_gradient;
  table.functions["pow_grad"] = pow_gradient;
}

}  // namespace millrace::interchange::pir
