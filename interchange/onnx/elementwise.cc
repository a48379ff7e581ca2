// Arithmetic and comparisons of two operands, and scale, clip, cast and sum.

#include "interchange/onnx/op_context.h"
#include "interchange/source_ops.h"

namespace millrace::interchange {
namespace {

// Adds axes of extent 1 at the end of the smaller operand, so that it starts at `axis` of the
// larger one; ONNX aligns operands at the end.
StatusOr<std::pair<std::string, std::string>> aligned(OpContext& c) {
  MILLRACE_ASSIGN_OR_RETURN(const Alignment alignment, read_alignment(c));
  std::string x = c.in("X");
  std::string y = c.in("Y");
  std::string& smaller = alignment.is_x ? x : y;
  if (!alignment.axes.empty()) smaller = c.unsqueeze(smaller, alignment.axes);
  return std::pair(x, y);
}

const std::map<std::string, std::string>& binary_types() {
  static const auto& names = *new std::map<std::string, std::string>{
      {"elementwise_add", "Add"},  {"elementwise_sub", "Sub"},
      {"elementwise_mul", "Mul"},  {"elementwise_div", "Div"},
      {"elementwise_pow", "Pow"},  {"elementwise_max", "Max"},
      {"elementwise_min", "Min"},  {"equal", "Equal"},
      {"less_than", "Less"},       {"less_equal", "LessOrEqual"},
      {"greater_than", "Greater"}, {"greater_equal", "GreaterOrEqual"}};
  return names;
}

Status binary(OpContext& c) {
  MILLRACE_ASSIGN_OR_RETURN(const auto operands, aligned(c));
  c.ignore({"force_cpu"});
  c.set("Out", c.node(binary_types().at(c.op().type().str()), {operands.first, operands.second}));
  return Ok();
}

Status not_equal(OpContext& c) {
  MILLRACE_ASSIGN_OR_RETURN(const auto operands, aligned(c));
  c.ignore({"force_cpu"});
  c.set("Out", c.node("Not", {c.node("Equal", {operands.first, operands.second})}));
  return Ok();
}

Status logical(OpContext& c) {
  const llvm::StringRef type = c.op().type();
  const std::string name = type == "logical_and" ? "And" : (type == "logical_or" ? "Or" : "Xor");
  c.set("Out", c.node(name, {c.in("X"), c.in("Y")}));
  return Ok();
}

// The remainder has the sign of the divisor: Mod of ONNX has it for integers only.
Status modulo(OpContext& c) {
  MILLRACE_ASSIGN_OR_RETURN(const auto operands, aligned(c));
  const auto& [x, y] = operands;
  if (is_integer(c.dtype("X"))) {
    c.set("Out", c.node("Mod", {x, y}));
    return Ok();
  }
  const std::string zero = c.scalar(0, c.dtype("X"));
  const std::string rest = c.node("Mod", {x, y}, {{"fmod", int64_t{1}}});
  const std::string differ =
      c.node("Xor", {c.node("Less", {rest, zero}), c.node("Less", {y, zero})});
  const std::string is_zero = c.node("Equal", {rest, zero});
  const std::string moved = c.node("And", {differ, c.node("Not", {is_zero})});
  c.set("Out", c.node("Where", {moved, c.node("Add", {rest, y}), rest}));
  return Ok();
}

// The quotient is rounded down; Div of ONNX truncates integers.
Status floor_divide(OpContext& c) {
  MILLRACE_ASSIGN_OR_RETURN(const auto operands, aligned(c));
  const auto& [x, y] = operands;
  if (is_integer(c.dtype("X"))) {
    const std::string rest = c.node("Mod", {x, y});
    c.set("Out", c.node("Div", {c.node("Sub", {x, rest}), y}));
  } else {
    c.set("Out", c.node("Floor", {c.node("Div", {x, y})}));
  }
  return Ok();
}

Status minus(OpContext& c) {
  c.set("Out", c.node("Sub", {c.in("X"), c.in("Y")}));
  return Ok();
}

Status scale(OpContext& c) {
  const DType dtype = c.dtype("X");
  const auto bias = c.attr<float>("bias");
  std::string value = c.in("X");
  const auto add_bias = [&] {
    if (bias != 0) value = c.node("Add", {value, c.scalar(bias, dtype)});
  };
  const bool bias_after = c.attr<bool>("bias_after_scale");
  if (!bias_after) add_bias();
  if (c.has("ScaleTensor")) {
    c.ignore({"scale"});
    const std::string factor = c.cast(c.reshape(c.in("ScaleTensor"), {}), dtype);
    value = c.node("Mul", {value, factor});
  } else if (c.attr<float>("scale") != 1) {
    value = c.node("Mul", {value, c.scalar(c.attr<float>("scale"), dtype)});
  }
  if (bias_after) add_bias();
  c.set("Out", value);
  return Ok();
}

Status clip_between(OpContext& c) {
  const DType dtype = c.dtype("X");
  const auto bound = [&](const char* slot, const char* attr) {
    c.ignore({attr});
    if (c.has(slot)) return c.cast(c.reshape(c.in(slot), {}), dtype);
    return c.scalar(c.attr<float>(attr), dtype);
  };
  const std::string low = bound("Min", "min");
  const std::string high = bound("Max", "max");
  c.set("Out", c.node("Clip", {c.in("X"), low, high}));
  return Ok();
}

Status cast_op(OpContext& c) {
  c.ignore({"in_dtype"});
  c.set("Out", c.cast(c.in("X"), static_cast<DType>(c.attr<int32_t>("out_dtype"))));
  return Ok();
}

Status sum_of_all(OpContext& c) {
  const std::vector<std::string> values = c.ins("X");
  if (values.empty()) return Ok();  // the missing input is reported
  std::string total = values[0];
  for (size_t i = 1; i < values.size(); ++i) total = c.node("Add", {total, values[i]});
  c.set("Out", total);
  return Ok();
}

Status increment(OpContext& c) {
  c.set("Out", c.node("Add", {c.in("X"), c.scalar(c.attr<float>("step"), c.dtype("X"))}));
  return Ok();
}

Status power(OpContext& c) {
  const DType dtype = c.dtype("X");
  std::string exponent;
  c.ignore({"factor"});
  if (c.has("FactorTensor"))
    exponent = c.cast(c.reshape(c.in("FactorTensor"), {}), dtype);
  else
    exponent = c.scalar(c.attr<float>("factor"), dtype);
  c.set("Out", c.node("Pow", {c.in("X"), exponent}));
  return Ok();
}

// Inference keeps all elements. With downgrade_in_infer, training did not scale them, so that they
// are scaled here.
Status dropout(OpContext& c) {
  c.ignore({"seed", "fix_seed"});
  const auto implementation = c.attr<std::string>("dropout_implementation");
  if (!c.attr<bool>("is_test")) return c.refuse("dropout without is_test draws random numbers");
  if (c.has("Seed")) c.ins("Seed");
  const auto p = c.attr<float>("dropout_prob");
  std::string value = c.in("X");
  if (implementation == "downgrade_in_infer")
    value = c.node("Mul", {value, c.scalar(1.0F - p, c.dtype("X"))});
  c.set("Out", value);
  return Ok();
}

}  // namespace

void add_elementwise_ops(ConverterTable& table) {
  for (const auto& [type, name] : binary_types()) table[type] = binary;
  table["not_equal"] = not_equal;
  table["logical_and"] = table["logical_or"] = table["logical_xor"] = logical;
  table["elementwise_mod"] = modulo;
  table["elementwise_floordiv"] = floor_divide;
  table["minus"] = minus;
  table["scale"] = scale;
  table["clip"] = clip_between;
  table["cast"] = cast_op;
  table["sum"] = sum_of_all;
  table["pow"] = power;
  table["increment"] = increment;
  table["dropout"] = dropout;
}

}  // namespace millrace::interchange
