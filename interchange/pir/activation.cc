// Functions of single elements, and softmax.

#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {
namespace {

constexpr Row kActivationRows[] = {
    {"abs", "abs", "X", "", "Out"},
    {"acos", "acos", "X", "", "Out"},
    {"acosh", "acosh", "X", "", "Out"},
    {"asin", "asin", "X", "", "Out"},
    {"asinh", "asinh", "X", "", "Out"},
    {"atan", "atan", "X", "", "Out"},
    {"atanh", "atanh", "X", "", "Out"},
    {"brelu", "hardtanh", "X", "t_min:f32 t_max:f32", "Out"},
    {"ceil", "ceil", "X", "", "Out"},
    {"celu", "celu", "X", "alpha:f32", "Out"},
    {"cos", "cos", "X", "", "Out"},
    {"cosh", "cosh", "X", "", "Out"},
    {"digamma", "digamma", "X", "", "Out"},
    {"elu", "elu", "X", "alpha:f32", "Out"},
    {"erf", "erf", "X", "", "Out"},
    {"exp", "exp", "X", "", "Out"},
    {"expm1", "expm1", "X", "", "Out"},
    {"floor", "floor", "X", "", "Out"},
    {"gelu", "gelu", "X", "approximate:bool", "Out"},
    {"hard_shrink", "hardshrink", "X", "threshold:f32", "Out"},
    {"hard_sigmoid", "hardsigmoid", "X", "slope:f32 offset:f32", "Out"},
    {"isfinite_v2", "isfinite", "X", "", "Out"},
    {"isinf_v2", "isinf", "X", "", "Out"},
    {"isnan_v2", "isnan", "X", "", "Out"},
    {"leaky_relu", "leaky_relu", "X", "negative_slope<alpha:f64", "Out"},
    {"lgamma", "lgamma", "X", "", "Out"},
    {"log", "log", "X", "", "Out"},
    {"log10", "log10", "X", "", "Out"},
    {"log1p", "log1p", "X", "", "Out"},
    {"log2", "log2", "X", "", "Out"},
    {"log_softmax", "log_softmax", "X", "axis:i32", "Out"},
    {"logical_not", "logical_not", "X", "", "Out"},
    {"logit", "logit", "X", "eps:f64", "Out"},
    {"logsigmoid", "logsigmoid", "X", "", "Out"},
    {"maxout", "maxout", "X", "groups:i32 axis:i32", "Out"},
    {"mish", "mish", "X", "lambda<threshold:f32", "Out"},
    {"prelu", "prelu", "X Alpha", "data_format:str mode:str", "Out"},
    {"reciprocal", "reciprocal", "X", "", "Out"},
    {"relu", "relu", "X", "", "Out"},
    {"round", "round", "X", "decimals:i32=0", "Out"},
    {"rsqrt", "rsqrt", "X", "", "Out"},
    {"selu", "selu", "X", "scale:f32 alpha:f32", "Out"},
    {"sigmoid", "sigmoid", "X", "", "Out"},
    {"sign", "sign", "X", "", "Out"},
    {"silu", "silu", "X", "", "Out"},
    {"sin", "sin", "X", "", "Out"},
    {"sinh", "sinh", "X", "", "Out"},
    {"soft_relu", "soft_relu", "X", "threshold:f32", "Out"},
    {"softmax", "softmax", "X", "axis:i32 !data_format", "Out"},
    {"softplus", "softplus", "X", "beta:f64 threshold:f64", "Out"},
    {"softshrink", "softshrink", "X", "threshold<lambda:f32", "Out"},
    {"softsign", "softsign", "X", "", "Out"},
    {"sqrt", "sqrt", "X", "", "Out"},
    {"square", "square", "X", "", "Out"},
    {"stanh", "stanh", "X", "scale_a:f32 scale_b:f32", "Out"},
    {"tan", "tan", "X", "", "Out"},
    {"tanh", "tanh", "X", "", "Out"},
    {"tanh_shrink", "tanh_shrink", "X", "", "Out"},
    {"thresholded_relu", "thresholded_relu", "X", "threshold:f32 value:f32=0", "Out"},
    {"trunc", "trunc", "X", "", "Out"},
};

// min(max(x, 0), threshold); relu6 of PIR has the threshold 6.
Status relu6(OpContext& c) {
  const auto threshold = c.attr<float>("threshold");
  const Value x = c.in("X");
  if (threshold == 6.0F) {
    c.set("Out", c.node("relu6", {x}, {}, c.out_type("Out")));
  } else {
    c.set("Out", c.node("hardtanh", {x}, {of_f32("t_min", 0), of_f32("t_max", threshold)},
                        c.out_type("Out")));
  }
  return Ok();
}

// x * min(max(x + offset, 0), threshold) / scale; hardswish of PIR has no attributes.
Status hard_swish(OpContext& c) {
  const auto threshold = c.attr<float>("threshold");
  const auto scale = c.attr<float>("scale");
  const auto offset = c.attr<float>("offset");
  const Value x = c.in("X");
  const TensorType type = c.out_type("Out");
  if (threshold == 6.0F && scale == 6.0F && offset == 3.0F) {
    c.set("Out", c.node("hardswish", {x}, {}, type));
    return Ok();
  }
  const auto scaled = [&](const Value& value, double factor, double bias) {
    return c.node("scale", {value, c.full(factor, DType::kFloat32)},
                  {of_f32("bias", bias), of_bool("bias_after_scale", true)}, type);
  };
  const Value gate = c.node("hardtanh", {scaled(x, 1, offset)},
                            {of_f32("t_min", 0), of_f32("t_max", threshold)}, type);
  c.set("Out", scaled(c.node("multiply", {x, gate}, {}, type), 1 / static_cast<double>(scale), 0));
  return Ok();
}

// x * sigmoid(beta * x); swish of PIR has the factor 1.
Status swish(OpContext& c) {
  const auto beta = c.attr<float>("beta");
  const Value x = c.in("X");
  const TensorType type = c.out_type("Out");
  if (beta == 1.0F) {
    c.set("Out", c.node("swish", {x}, {}, type));
    return Ok();
  }
  const Value scaled = c.node("scale", {x, c.full(beta, DType::kFloat32)},
                              {of_f32("bias", 0), of_bool("bias_after_scale", true)}, type);
  c.set("Out", c.node("multiply", {x, c.node("sigmoid", {scaled}, {}, type)}, {}, type));
  return Ok();
}

}  // namespace

void add_activation_ops(Converters& table) {
  for (const Row& row : kActivationRows) table.rows[row.type] = &row;
  table.functions["relu6"] = relu6;
  table.functions["hard_swish"] = hard_swish;
  table.functions["swish"] = swish;
}

}  // namespace millrace::interchange::pir
