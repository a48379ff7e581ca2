// Functions of single elements, and softmax.

#include <numeric>

#include "interchange/from_onnx/node_context.h"

namespace millrace::interchange {
namespace {

// Nodes that are an op of another name, without attributes.
const std::map<std::string, const char*>& equal_functions() {
  static const auto& names = *new std::map<std::string, const char*>{
      {"Relu", "relu"},       {"Sigmoid", "sigmoid"},   {"Tanh", "tanh"},
      {"Exp", "exp"},         {"Log", "log"},           {"Sqrt", "sqrt"},
      {"Abs", "abs"},         {"Floor", "floor"},       {"Ceil", "ceil"},
      {"Erf", "erf"},         {"Sin", "sin"},           {"Cos", "cos"},
      {"Tan", "tan"},         {"Asin", "asin"},         {"Acos", "acos"},
      {"Atan", "atan"},       {"Sinh", "sinh"},         {"Cosh", "cosh"},
      {"Asinh", "asinh"},     {"Acosh", "acosh"},       {"Atanh", "atanh"},
      {"Sign", "sign"},       {"Softsign", "softsign"}, {"Reciprocal", "reciprocal"},
      {"Not", "logical_not"}, {"IsNaN", "isnan_v2"},
  };
  return names;
}

Status equal_function(NodeContext& c) {
  c.set(0, c.op(equal_functions().at(c.type()), {{"X", {c.in(0)}}}));
  return Ok();
}

// Nodes that differ from an op in the name of an attribute and in its default.
struct OneAttr {
  const char* op;
  const char* attr;
  const char* to;
  float fallback;
};

const std::map<std::string, OneAttr>& one_attr_functions() {
  static const auto& rows = *new std::map<std::string, OneAttr>{
      {"LeakyRelu", {"leaky_relu", "alpha", "alpha", 0.01F}},
      {"Elu", {"elu", "alpha", "alpha", 1.0F}},
      {"Celu", {"celu", "alpha", "alpha", 1.0F}},
      {"ThresholdedRelu", {"thresholded_relu", "alpha", "threshold", 1.0F}}};
  return rows;
}

Status one_attr_function(NodeContext& c) {
  const OneAttr& row = one_attr_functions().at(c.type());
  const float value = c.attr_float(row.attr, row.fallback);
  c.set(0, c.op(row.op, {{"X", {c.in(0)}}}, {float_attr(row.to, value)}));
  return Ok();
}

Status selu_node(NodeContext& c) {
  const float alpha = c.attr_float("alpha", 1.67326319217681884765625F);
  const float gamma = c.attr_float("gamma", 1.05070102214813232421875F);
  c.set(0,
        c.op("selu", {{"X", {c.in(0)}}}, {float_attr("alpha", alpha), float_attr("scale", gamma)}));
  return Ok();
}

Status hard_sigmoid_node(NodeContext& c) {
  const float alpha = c.attr_float("alpha", 0.2F);
  const float beta = c.attr_float("beta", 0.5F);
  c.set(0, c.op("hard_sigmoid", {{"X", {c.in(0)}}},
                {float_attr("slope", alpha), float_attr("offset", beta)}));
  return Ok();
}

// x * max(0, min(1, x / 6 + 0.5))
Status hard_swish_node(NodeContext& c) {
  c.set(0, c.op("hard_swish", {{"X", {c.in(0)}}},
                {float_attr("threshold", 6), float_attr("scale", 6), float_attr("offset", 3)}));
  return Ok();
}

// Above the threshold the op returns x, which is what the sum with log1p(exp(-x)) rounds to: for
// f64 that needs a larger threshold than for f32.
Status softplus_node(NodeContext& c) {
  const std::string x = c.in(0);
  const float threshold = c.dtype(x) == DType::kFloat64 ? 40 : 20;
  c.set(0, c.op("softplus", {{"X", {x}}},
                {float_attr("beta", 1), float_attr("threshold", threshold)}));
  return Ok();
}

Status mish_node(NodeContext& c) {
  c.set(0, c.op("mish", {{"X", {c.in(0)}}}, {float_attr("threshold", 20)}));
  return Ok();
}

Status gelu_node(NodeContext& c) {
  const std::string approximate = c.attr_string("approximate", "none");
  if (approximate != "none" && approximate != "tanh")
    return c.refuse("the approximation '" + approximate + "'");
  c.set(0, c.op("gelu", {{"X", {c.in(0)}}}, {bool_attr("approximate", approximate == "tanh")}));
  return Ok();
}

// Moves values outside of [-lambd, lambd] by the bias towards 0; values inside become 0.
Status shrink_node(NodeContext& c) {
  const float lambd = c.attr_float("lambd", 0.5F);
  const float bias = c.attr_float("bias", 0);
  const std::string x = c.in(0);
  if (c.dtype(x) != DType::kFloat32 && c.dtype(x) != DType::kFloat64)
    return c.refuse("shrinking of integers");
  if (lambd < 0 || (bias != 0 && bias != lambd)) return c.refuse("a bias other than 0 and lambd");
  if (bias == 0)
    c.set(0, c.op("hard_shrink", {{"X", {x}}}, {float_attr("threshold", lambd)}));
  else
    c.set(0, c.op("softshrink", {{"X", {x}}}, {float_attr("lambda", lambd)}));
  return Ok();
}

// Halves are rounded to even numbers; the op rounds them away from zero. Twice the rounded half of
// such a number is the even one.
Status round_node(NodeContext& c) {
  const std::string x = c.in(0);
  const DType dtype = c.dtype(x);
  const std::string fraction = c.binary("elementwise_sub", x, c.op("floor", {{"X", {x}}}));
  const std::string is_half = c.binary("equal", fraction, c.scalar(0.5, dtype));
  const std::string half = c.op("scale", {{"X", {x}}}, {float_attr("scale", 0.5F)});
  const std::string even =
      c.op("scale", {{"X", {c.op("round", {{"X", {half}}})}}}, {float_attr("scale", 2)});
  const std::string rounded = c.op("round", {{"X", {x}}});
  c.set(0, c.op("where", {{"Condition", {is_half}}, {"X", {even}}, {"Y", {rounded}}}));
  return Ok();
}

Status is_inf_node(NodeContext& c) {
  if (!c.attr_bool("detect_negative", true) || !c.attr_bool("detect_positive", true))
    return c.refuse("infinities of one sign only");
  c.set(0, c.op("isinf_v2", {{"X", {c.in(0)}}}));
  return Ok();
}

Status neg_node(NodeContext& c) {
  const std::string x = c.in(0);
  if (c.dtype(x) == DType::kFloat32 || c.dtype(x) == DType::kFloat64 ||
      c.dtype(x) == DType::kFloat16)
    c.set(0, c.op("scale", {{"X", {x}}}, {float_attr("scale", -1)}));
  else
    c.set(0, c.binary("elementwise_mul", x, c.scalar(-1, c.dtype(x))));
  return Ok();
}

// Over one axis. The op log_softmax clips exponents at -64, which only the logarithm shows.
std::string softmax_of(NodeContext& c, const std::string& x, int64_t axis) {
  if (c.type() == "Softmax") return c.op("softmax", {{"X", {x}}}, {int_attr("axis", axis)});
  const auto reduced = [&](const char* type, const std::string& values) {
    return c.op(type, {{"X", {values}}}, {ints_attr("dim", {axis}), bool_attr("keep_dim", true)});
  };
  const std::string rest = c.binary("elementwise_sub", x, reduced("reduce_max", x));
  const std::string sum = reduced("reduce_sum", c.op("exp", {{"X", {rest}}}, {}));
  return c.binary("elementwise_sub", rest, c.op("log", {{"X", {sum}}}, {}));
}

// Before operator set 13, all dims from the axis on are one dim.
Status softmax_node(NodeContext& c) {
  std::string x = c.in(0);
  const int64_t rank = c.rank(x);
  const int64_t axis = c.attr_axis("axis", c.opset() < 13 ? 1 : -1, rank);
  if (c.opset() >= 13 || axis == rank - 1) {
    c.set(0, softmax_of(c, x, axis));
    return Ok();
  }
  if (!c.is_static(x)) {
    for (int64_t i = axis; i < rank; ++i)
      if (i != axis && c.extent(x, i) != 1)
        return c.refuse("an axis that is not the last one, with unknown extents");
    c.set(0, softmax_of(c, x, axis));
    return Ok();
  }
  const Dims dims = c.dims(x);
  const int64_t inner =
      std::accumulate(dims.begin() + axis, dims.end(), int64_t{1}, std::multiplies<>());
  const int64_t outer =
      std::accumulate(dims.begin(), dims.begin() + axis, int64_t{1}, std::multiplies<>());
  const std::string flat = softmax_of(c, c.reshape(x, {outer, inner}), 1);
  c.set(0, c.reshape(flat, {dims.begin(), dims.end()}));
  return Ok();
}

// One slope, one for each channel, or one for each element: what broadcasts is computed as
// max(x, 0) + slope * min(x, 0).
Status prelu_node(NodeContext& c) {
  const std::string x = c.in(0);
  const std::string slope = c.in(1);
  const Dims dims = c.dims(slope);
  const int64_t rank = c.rank(x);
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  // Operator set 6 has a vector, later ones align operands at the end.
  const bool has_channels =
      c.opset() < 7 ? dims.size() == 1 : static_cast<int64_t>(dims.size()) == rank - 1;
  const bool of_channels = has_channels && rank > 1 && dims[0] == count && count == c.extent(x, 1);
  if (count == 1 || of_channels) {
    const std::string flat = c.reshape(slope, {count});
    c.set(0, c.op("prelu", {{"X", {x}}, {"Alpha", {flat}}},
                  {string_attr("mode", count == 1 ? "all" : "channel"),
                   string_attr("data_format", "NCHW")}));
    return Ok();
  }
  const std::string zero = c.scalar(0, c.dtype(x));
  const std::string below =
      c.binary("elementwise_mul", c.binary("elementwise_min", x, zero), slope);
  c.set(0, c.binary("elementwise_add", c.binary("elementwise_max", x, zero), below));
  return Ok();
}

}  // namespace

void add_activation_nodes(NodeTable& table) {
  for (const auto& [type, op] : equal_functions()) table[type] = {equal_function};
  for (const auto& [type, row] : one_attr_functions()) table[type] = {one_attr_function};
  table["Selu"] = {selu_node};
  table["HardSigmoid"] = {hard_sigmoid_node};
  table["HardSwish"] = {hard_swish_node};
  table["Softplus"] = {softplus_node};
  table["Mish"] = {mish_node};
  table["Gelu"] = {gelu_node};
  table["Shrink"] = {shrink_node};
  table["Round"] = {round_node};
  table["IsInf"] = {is_inf_node};
  table["Neg"] = {neg_node};
  table["Softmax"] = table["LogSoftmax"] = {softmax_node};
  table["PRelu"] = {prelu_node, 2, 2};
}

}  // namespace millrace::interchange
