// Arithmetic and comparisons, which broadcast, and casts.

#include <limits>

#include "interchange/from_onnx/node_context.h"

namespace millrace::interchange {
namespace {

constexpr size_t kAnyNumber = std::numeric_limits<int>::max();

const std::map<std::string, const char*>& binary_ops() {
  static const auto& names =
      *new std::map<std::string, const char*>{{"Add", "elementwise_add"},
                                              {"Sub", "elementwise_sub"},
                                              {"Mul", "elementwise_mul"},
                                              {"Div", "elementwise_div"},
                                              {"Equal", "equal"},
                                              {"Less", "less_than"},
                                              {"LessOrEqual", "less_equal"},
                                              {"Greater", "greater_than"},
                                              {"GreaterOrEqual", "greater_equal"}};
  return names;
}

// Both formats let operands of different types through nowhere.
Status check_same_type(NodeContext& c, const std::string& x, const std::string& y) {
  return c.dtype(x) == c.dtype(y) ? Ok() : c.refuse("operands of different element types");
}

// Operator set 6 states that operands broadcast, which later ones always do.
void ignore_broadcast(NodeContext& c) {
  if (c.opset() < 7) c.ignore({"broadcast"});
}

Status binary_node(NodeContext& c) {
  ignore_broadcast(c);
  const std::string x = c.in(0);
  const std::string y = c.in(1);
  MILLRACE_RETURN_IF_ERROR(check_same_type(c, x, y));
  c.set(0, c.binary(binary_ops().at(c.type()), x, y));
  return Ok();
}

Status logical_node(NodeContext& c) {
  static const auto& names = *new std::map<std::string, const char*>{
      {"And", "logical_and"},        {"Or", "logical_or"},        {"Xor", "logical_xor"},
      {"BitwiseAnd", "bitwise_and"}, {"BitwiseOr", "bitwise_or"}, {"BitwiseXor", "bitwise_xor"}};
  const std::string x = c.in(0);
  const std::string y = c.in(1);
  MILLRACE_RETURN_IF_ERROR(check_same_type(c, x, y));
  const std::vector<std::string> operands = c.broadcast({x, y});
  c.set(0, c.op(names.at(c.type()), {{"X", {operands[0]}}, {"Y", {operands[1]}}}));
  return Ok();
}

// With fmod the remainder has the sign of the dividend, else that of the divisor, as in the op.
Status mod_node(NodeContext& c) {
  const std::string x = c.in(0);
  const std::string y = c.in(1);
  MILLRACE_RETURN_IF_ERROR(check_same_type(c, x, y));
  const bool is_float = c.dtype(x) == DType::kFloat32 || c.dtype(x) == DType::kFloat64;
  if (!c.attr_bool("fmod", false)) {
    if (is_float) return c.refuse("the remainder of floats without fmod");
    c.set(0, c.binary("elementwise_mod", x, y));
    return Ok();
  }
  const std::string size =
      c.binary("elementwise_mod", c.op("abs", {{"X", {x}}}), c.op("abs", {{"X", {y}}}));
  c.set(0, c.binary("elementwise_mul", size, c.op("sign", {{"X", {x}}})));
  return Ok();
}

Status pow_node(NodeContext& c) {
  ignore_broadcast(c);
  const std::string x = c.in(0);
  const std::string y = c.in(1);
  const bool is_float = c.dtype(x) == DType::kFloat32 || c.dtype(x) == DType::kFloat64;
  if (!is_float) return c.refuse("powers of integers");
  if (const auto exponent = c.number(y); exponent && c.dtype(x) == DType::kFloat32 &&
                                         *exponent == static_cast<float>(*exponent) &&
                                         c.rank(y) <= c.rank(x)) {
    c.set(0, c.op("pow", {{"X", {x}}}, {float_attr("factor", static_cast<float>(*exponent))}));
    return Ok();
  }
  c.set(0, c.binary("elementwise_pow", x, c.cast(y, c.dtype(x))));
  return Ok();
}

Status variadic_node(NodeContext& c) {
  static const auto& names = *new std::map<std::string, const char*>{{"Sum", "elementwise_add"},
                                                                     {"Mean", "elementwise_add"},
                                                                     {"Max", "elementwise_max"},
                                                                     {"Min", "elementwise_min"}};
  const std::vector<std::string> values = c.ins();
  std::string out = values[0];
  for (size_t i = 1; i < values.size(); ++i) {
    MILLRACE_RETURN_IF_ERROR(check_same_type(c, out, values[i]));
    out = c.binary(names.at(c.type()), out, values[i]);
  }
  if (c.type() == "Mean" && values.size() > 1)
    out = c.binary("elementwise_div", out,
                   c.scalar(static_cast<double>(values.size()), c.dtype(out)));
  c.set(0, out);
  return Ok();
}

// Where the lower bound is above the upper one, ONNX returns the upper one.
Status clip_node(NodeContext& c) {
  const std::string x = c.in(0);
  const DType dtype = c.dtype(x);
  std::string out = x;
  const auto bounded = [&](const char* type, const std::string& bound) {
    out = c.binary(type, out, bound);
  };
  if (c.opset() < 11) {
    const float low = c.attr_float("min", std::numeric_limits<float>::lowest());
    const float high = c.attr_float("max", std::numeric_limits<float>::max());
    c.set(0, c.op("clip", {{"X", {x}}}, {float_attr("min", low), float_attr("max", high)}));
    return Ok();
  }
  const std::string low = c.has(1) ? c.in(1) : "";
  const std::string high = c.has(2) ? c.in(2) : "";
  const auto low_number = low.empty() ? -std::numeric_limits<float>::infinity() : c.number(low);
  const auto high_number = high.empty() ? std::numeric_limits<float>::infinity() : c.number(high);
  if (dtype == DType::kFloat32 && low_number && high_number && *low_number <= *high_number) {
    c.set(0, c.op("clip", {{"X", {x}}},
                  {float_attr("min", static_cast<float>(*low_number)),
                   float_attr("max", static_cast<float>(*high_number))}));
    return Ok();
  }
  if (!low.empty()) bounded("elementwise_max", low);
  if (!high.empty()) bounded("elementwise_min", high);
  c.set(0, out);
  return Ok();
}

Status cast_node(NodeContext& c) {
  c.ignore({"saturate"});  // for floats of 8 bits only
  const std::string x = c.in(0);
  MILLRACE_ASSIGN_OR_RETURN(const DType to,
                            dtype_from_onnx(static_cast<int32_t>(c.attr_int("to", 0))));
  c.set(0, c.cast(x, to));
  return Ok();
}

Status cast_like_node(NodeContext& c) {
  c.ignore({"saturate"});
  c.set(0, c.cast(c.in(0), c.dtype(c.in(1))));
  return Ok();
}

Status where_node(NodeContext& c) {
  const std::string condition = c.in(0);
  const std::string x = c.in(1);
  const std::string y = c.in(2);
  MILLRACE_RETURN_IF_ERROR(check_same_type(c, x, y));
  const std::vector<std::string> all = c.broadcast({condition, x, y});
  c.set(0, c.op("where", {{"Condition", {all[0]}}, {"X", {all[1]}}, {"Y", {all[2]}}}));
  return Ok();
}

// Inference keeps all elements.
Status dropout_node(NodeContext& c) {
  c.ignore({"ratio", "seed"});
  if (c.opset() < 7 && !c.attr_bool("is_test", false))
    return c.refuse("dropout that draws random numbers");
  if (c.has(2)) {
    const auto training = c.number(c.in(2));
    if (!training || *training != 0) return c.refuse("dropout that draws random numbers");
  }
  c.ignore_inputs(1);
  c.set(0, c.in(0));
  return Ok();
}

Status identity_node(NodeContext& c) {
  c.set(0, c.in(0));
  return Ok();
}

}  // namespace

void add_elementwise_nodes(NodeTable& table) {
  for (const auto& [type, op] : binary_ops()) table[type] = {binary_node, 2, 2};
  for (const char* type : {"And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor"})
    table[type] = {logical_node, 2, 2};
  for (const char* type : {"Sum", "Mean", "Max", "Min"})
    table[type] = {variadic_node, 1, kAnyNumber};
  table["Mod"] = {mod_node, 2, 2};
  table["Pow"] = {pow_node, 2, 2};
  table["Clip"] = {clip_node, 1, 3};
  table["Cast"] = {cast_node};
  table["CastLike"] = {cast_like_node, 2, 2};
  table["Where"] = {where_node, 3, 3};
  table["Dropout"] = {dropout_node, 1, 3};
  table["Identity"] = {identity_node};
}

}  // namespace millrace::interchange
