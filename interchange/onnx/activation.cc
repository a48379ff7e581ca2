// Functions of single elements, and softmax.

#include <cmath>

#include "interchange/onnx/op_context.h"

namespace millrace::interchange {
namespace {

// Ops that ONNX has under another name, without attributes.
const std::map<std::string, std::string>& same_functions() {
  static const auto& names = *new std::map<std::string, std::string>{
      {"relu", "Relu"},       {"sigmoid", "Sigmoid"},   {"tanh", "Tanh"},
      {"exp", "Exp"},         {"log", "Log"},           {"sqrt", "Sqrt"},
      {"abs", "Abs"},         {"floor", "Floor"},       {"ceil", "Ceil"},
      {"erf", "Erf"},         {"sin", "Sin"},           {"cos", "Cos"},
      {"tan", "Tan"},         {"asin", "Asin"},         {"acos", "Acos"},
      {"atan", "Atan"},       {"sinh", "Sinh"},         {"cosh", "Cosh"},
      {"asinh", "Asinh"},     {"acosh", "Acosh"},       {"atanh", "Atanh"},
      {"sign", "Sign"},       {"softsign", "Softsign"}, {"reciprocal", "Reciprocal"},
      {"logical_not", "Not"}, {"isnan_v2", "IsNaN"},    {"isinf_v2", "IsInf"},
      {"assign", "Identity"}};
  return names;
}

Status same_function(OpContext& c) {
  c.set("Out", c.node(same_functions().at(c.op().type().str()), {c.in("X")}));
  return Ok();
}

std::string clip(OpContext& c, const std::string& x, double low, double high) {
  const DType dtype = c.dtype("X");
  return c.node("Clip", {x, c.scalar(low, dtype), c.scalar(high, dtype)});
}

std::string times(OpContext& c, const std::string& x, double factor) {
  return c.node("Mul", {x, c.scalar(factor, c.dtype("X"))});
}

Status relu6(OpContext& c) {
  c.set("Out", clip(c, c.in("X"), 0, c.attr<float>("threshold")));
  return Ok();
}

Status brelu(OpContext& c) {
  c.set("Out", clip(c, c.in("X"), c.attr<float>("t_min"), c.attr<float>("t_max")));
  return Ok();
}

// Ops with one attribute that ONNX has under another name.
Status leaky_relu(OpContext& c) {
  c.set("Out", c.node("LeakyRelu", {c.in("X")}, {{"alpha", c.attr<float>("alpha")}}));
  return Ok();
}

Status elu(OpContext& c) {
  c.set("Out", c.node("Elu", {c.in("X")}, {{"alpha", c.attr<float>("alpha")}}));
  return Ok();
}

Status selu(OpContext& c) {
  c.set("Out", c.node("Selu", {c.in("X")},
                      {{"alpha", c.attr<float>("alpha")}, {"gamma", c.attr<float>("scale")}}));
  return Ok();
}

// The ops keep NaN, of which nodes that compare with a threshold make 0.
std::string with_nan(OpContext& c, const std::string& x, const std::string& result) {
  return c.node("Where", {c.node("IsNaN", {x}), x, result});
}

Status thresholded_relu(OpContext& c) {
  const std::string x = c.in("X");
  c.set("Out",
        with_nan(c, x, c.node("ThresholdedRelu", {x}, {{"alpha", c.attr<float>("threshold")}})));
  return Ok();
}

Status hard_shrink(OpContext& c) {
  const std::string x = c.in("X");
  c.set("Out", with_nan(c, x, c.node("Shrink", {x}, {{"lambd", c.attr<float>("threshold")}})));
  return Ok();
}

Status softshrink(OpContext& c) {
  const std::string x = c.in("X");
  const float lambda = c.attr<float>("lambda");
  const std::string high = c.scalar(lambda, c.dtype("X"));
  const std::string low = c.scalar(-lambda, c.dtype("X"));
  const std::string below = c.node(
      "Where", {c.node("Less", {x, low}), c.node("Sub", {x, low}), c.scalar(0, c.dtype("X"))});
  c.set("Out",
        with_nan(c, x,
                 c.node("Where", {c.node("Greater", {x, high}), c.node("Sub", {x, high}), below})));
  return Ok();
}

Status hard_sigmoid(OpContext& c) {
  c.set("Out", c.node("HardSigmoid", {c.in("X")},
                      {{"alpha", c.attr<float>("slope")}, {"beta", c.attr<float>("offset")}}));
  return Ok();
}

// x * clip(x + offset, 0, threshold) / scale; HardSwish of ONNX has no parameters.
Status hard_swish(OpContext& c) {
  const std::string x = c.in("X");
  const std::string moved = c.node("Add", {x, c.scalar(c.attr<float>("offset"), c.dtype("X"))});
  const std::string gate = clip(c, moved, 0, c.attr<float>("threshold"));
  c.set("Out",
        c.node("Div", {c.node("Mul", {x, gate}), c.scalar(c.attr<float>("scale"), c.dtype("X"))}));
  return Ok();
}

Status swish(OpContext& c) {
  const std::string x = c.in("X");
  const float beta = c.op().type() == "swish" ? c.attr<float>("beta") : 1.0F;
  const std::string gate = beta == 1.0F ? x : times(c, x, beta);
  c.set("Out", c.node("Mul", {x, c.node("Sigmoid", {gate})}));
  return Ok();
}

// Values above the threshold stay as they are.
std::string softplus_of(OpContext& c, const std::string& x, double beta, double threshold) {
  const std::string scaled = beta == 1 ? x : times(c, x, beta);
  const std::string is_large = c.node("Greater", {scaled, c.scalar(threshold, c.dtype("X"))});
  std::string soft = c.node("Softplus", {scaled});
  if (beta != 1) soft = c.node("Div", {soft, c.scalar(beta, c.dtype("X"))});
  return c.node("Where", {is_large, x, soft});
}

Status softplus(OpContext& c) {
  c.set("Out", softplus_of(c, c.in("X"), c.attr<float>("beta"), c.attr<float>("threshold")));
  return Ok();
}

Status mish(OpContext& c) {
  const std::string x = c.in("X");
  const std::string soft = softplus_of(c, x, 1, c.attr<float>("threshold"));
  c.set("Out", c.node("Mul", {x, c.node("Tanh", {soft})}));
  return Ok();
}

Status logsigmoid(OpContext& c) {
  c.set("Out", c.node("Neg", {c.node("Softplus", {c.node("Neg", {c.in("X")})})}));
  return Ok();
}

Status tanh_shrink(OpContext& c) {
  const std::string x = c.in("X");
  c.set("Out", c.node("Sub", {x, c.node("Tanh", {x})}));
  return Ok();
}

Status stanh(OpContext& c) {
  const std::string inner = times(c, c.in("X"), c.attr<float>("scale_a"));
  c.set("Out", times(c, c.node("Tanh", {inner}), c.attr<float>("scale_b")));
  return Ok();
}

Status gelu(OpContext& c) {
  const std::string x = c.in("X");
  const DType dtype = c.dtype("X");
  std::string gate;
  if (c.attr<bool>("approximate")) {
    const std::string cube = c.node("Mul", {c.node("Mul", {x, x}), x});
    const std::string sum = c.node("Add", {x, times(c, cube, 0.044715)});
    gate = c.node("Tanh", {times(c, sum, std::sqrt(2 / M_PI))});
  } else {
    gate = c.node("Erf", {times(c, x, std::sqrt(0.5))});
  }
  const std::string doubled = c.node("Mul", {x, c.node("Add", {gate, c.scalar(1, dtype)})});
  c.set("Out", times(c, doubled, 0.5));
  return Ok();
}

Status square(OpContext& c) {
  const std::string x = c.in("X");
  c.set("Out", c.node("Mul", {x, x}));
  return Ok();
}

Status rsqrt(OpContext& c) {
  c.set("Out", c.node("Reciprocal", {c.node("Sqrt", {c.in("X")})}));
  return Ok();
}

Status log_with_base(OpContext& c) {
  const double base = c.op().type() == "log2" ? 2 : 10;
  c.set("Out", times(c, c.node("Log", {c.in("X")}), 1 / std::log(base)));
  return Ok();
}

// log(1 + x) without the loss of digits near 0 (Kahan): with u = 1 + x it is x where u rounds to 1,
// else log(u) * x / (u - 1).
Status log1p(OpContext& c) {
  const std::string x = c.in("X");
  const std::string one = c.scalar(1, c.dtype("X"));
  const std::string u = c.node("Add", {x, one});
  const std::string ratio = c.node("Div", {x, c.node("Sub", {u, one})});
  const std::string product = c.node("Mul", {c.node("Log", {u}), ratio});
  c.set("Out", c.node("Where", {c.node("Equal", {u, one}), x, product}));
  return Ok();
}

// Halves are rounded away from zero; Round of ONNX rounds them to even numbers.
Status round_away(OpContext& c) {
  const std::string x = c.in("X");
  const DType dtype = c.dtype("X");
  const std::string size = c.node("Abs", {x});
  const std::string below = c.node("Floor", {size});
  const std::string is_up =
      c.node("GreaterOrEqual", {c.node("Sub", {size, below}), c.scalar(0.5, dtype)});
  const std::string rounded =
      c.node("Where", {is_up, c.node("Add", {below, c.scalar(1, dtype)}), below});
  c.set("Out", c.node("Mul", {c.node("Sign", {x}), rounded}));
  return Ok();
}

Status isfinite(OpContext& c) {
  const std::string x = c.in("X");
  c.set("Out", c.node("Not", {c.node("Or", {c.node("IsNaN", {x}), c.node("IsInf", {x})})}));
  return Ok();
}

Status prelu(OpContext& c) {
  const auto mode = c.attr<std::string>("mode");
  const int64_t rank = c.rank("X");
  std::string slope = c.in("Alpha");
  if (mode == "all") {
    slope = c.reshape(slope, {1});
  } else if (mode == "channel" && c.attr<std::string>("data_format") != "NHWC") {
    std::vector<int64_t> dims(static_cast<size_t>(std::max<int64_t>(rank - 1, 1)), 1);
    dims[0] = -1;
    slope = c.reshape(slope, dims);
  } else if (mode == "channel") {
    slope = c.reshape(slope, {-1});
  } else {  // one slope for each element of an example
    std::vector<int64_t> dims = {1};
    const Dims x = c.dims("X");
    for (size_t i = 1; i < x.size(); ++i) dims.push_back(x[i]);
    for (const int64_t dim : dims)
      if (dim < 0) return c.refuse("prelu with mode 'element' needs known dims of X");
    slope = c.reshape(slope, dims);
  }
  c.set("Out", c.node("PRelu", {c.in("X"), slope}));
  return Ok();
}

Status softmax(OpContext& c) {
  if (c.rank("X") == 0) return c.refuse("softmax of a scalar");
  c.ignore({"data_format"});
  const int64_t axis = c.axis("axis", c.rank("X"));
  std::string x = c.in("X");
  const bool is_log = c.op().type() == "log_softmax";
  if (is_log) {  // exponents are clipped at -64, which only the logarithm shows
    const std::string top = c.reduce("ReduceMax", x, {axis}, true);
    x = c.node("Max", {x, c.node("Sub", {top, c.scalar(64, c.dtype("X"))})});
  }
  c.set("Out", c.node(is_log ? "LogSoftmax" : "Softmax", {x}, {{"axis", axis}}));
  return Ok();
}

}  // namespace

void add_activation_ops(ConverterTable& table) {
  for (const auto& [type, name] : same_functions()) table[type] = same_function;
  table["relu6"] = relu6;
  table["brelu"] = brelu;
  table["leaky_relu"] = leaky_relu;
  table["elu"] = elu;
  table["selu"] = selu;
  table["thresholded_relu"] = thresholded_relu;
  table["hard_shrink"] = hard_shrink;
  table["softshrink"] = softshrink;
  table["hard_sigmoid"] = hard_sigmoid;
  table["hard_swish"] = hard_swish;
  table["swish"] = table["silu"] = swish;
  table["softplus"] = softplus;
  table["mish"] = mish;
  table["logsigmoid"] = logsigmoid;
  table["tanh_shrink"] = tanh_shrink;
  table["stanh"] = stanh;
  table["gelu"] = gelu;
  table["square"] = square;
  table["rsqrt"] = rsqrt;
  table["log2"] = table["log10"] = log_with_base;
  table["log1p"] = log1p;
  table["round"] = round_away;
  table["isfinite_v2"] = isfinite;
  table["prelu"] = prelu;
  table["softmax"] = table["log_softmax"] = softmax;
}

}  // namespace millrace::interchange
