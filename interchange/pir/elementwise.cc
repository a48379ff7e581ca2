// Arithmetic and comparisons of two operands, and scale, clip, cast and sum.

#include <algorithm>

#include "interchange/pir/rows.h"
#include "interchange/source_ops.h"

namespace millrace::interchange::pir {
namespace {

constexpr Row kElementwiseRows[] = {
    {"bitwise_and", "bitwise_and", "X Y", "", "Out"},
    {"bitwise_not", "bitwise_not", "X", "", "Out"},
    {"bitwise_or", "bitwise_or", "X Y", "", "Out"},
    {"bitwise_xor", "bitwise_xor", "X Y", "", "Out"},
    {"cast", "cast", "X", "dtype<out_dtype:dtype !in_dtype", "Out"},
    {"clip", "clip", "X @min:f32|Min @max:f32|Max", "", "Out"},
    {"clip_by_norm", "clip_by_norm", "X", "max_norm:f32", "Out"},
    {"dropout", "dropout", "X Seed? @dropout_prob:f32",
     "is_test:bool mode<dropout_implementation:str seed:i32 fix_seed:bool", "Out Mask"},
    {"fused_elemwise_activation", "fused_elemwise_activation", "X Y",
     "functor_list:strs axis:i32 scale:f32 save_intermediate_out:bool", "Out IntermediateOut"},
    {"increment", "increment", "X", "value<step:f32", "Out"},
    {"kron", "kron", "X Y", "", "Out"},
    {"logical_and", "logical_and", "X Y", "", "Out"},
    {"logical_or", "logical_or", "X Y", "", "Out"},
    {"logical_xor", "logical_xor", "X Y", "", "Out"},
    {"scale", "scale", "X @scale:f32|ScaleTensor", "bias:f32 bias_after_scale:bool", "Out"},
    {"sum", "add_n", "X*", "", "Out"},
};

struct BinaryName {
  const char* type;
  const char* name;
};

constexpr BinaryName kBinaryNames[] = {
    {"elementwise_add", "add"},
    {"elementwise_sub", "subtract"},
    {"elementwise_mul", "multiply"},
    {"elementwise_div", "divide"},
    {"elementwise_floordiv", "floor_divide"},
    {"elementwise_mod", "remainder"},
    {"elementwise_max", "maximum"},
    {"elementwise_min", "minimum"},
    {"elementwise_fmax", "fmax"},
    {"elementwise_fmin", "fmin"},
    {"elementwise_pow", "elementwise_pow"},
    {"elementwise_heaviside", "heaviside"},
    {"equal", "equal"},
    {"not_equal", "not_equal"},
    {"less_than", "less_than"},
    {"less_equal", "less_equal"},
    {"greater_than", "greater_than"},
    {"greater_equal", "greater_equal"},
};

// PIR aligns operands at the end. Axes of extent 1 are added at the end of the smaller operand, so
// that it starts at `axis` of the larger one.
StatusOr<std::vector<Value>> aligned(OpContext& c) {
  MILLRACE_ASSIGN_OR_RETURN(const Alignment alignment, read_alignment(c));
  std::vector<Value> operands = {c.in("X"), c.in("Y")};
  Value& smaller = operands[alignment.is_x ? 0 : 1];
  if (!alignment.axes.empty()) smaller = c.unsqueeze(smaller, alignment.axes);
  return operands;
}

Status binary(OpContext& c) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<Value> operands, aligned(c));
  c.ignore({"force_cpu"});
  const std::string type = c.op().type().str();
  const auto* const found = std::find_if(std::begin(kBinaryNames), std::end(kBinaryNames),
                                         [&](const BinaryName& row) { return type == row.type; });
  c.set("Out", c.node(found->name, operands, {}, c.out_type("Out")));
  return Ok();
}

Status minus(OpContext& c) {
  c.set("Out", c.node("subtract", {c.in("X"), c.in("Y")}, {}, c.out_type("Out")));
  return Ok();
}

Status power(OpContext& c) {
  c.ignore({"factor"});
  const Value x = c.in("X");
  if (c.has("FactorTensor")) {
    const Value factor = c.cast(c.in("FactorTensor"), c.dtype("X"));
    c.set("Out", c.node("elementwise_pow", {x, factor}, {}, c.out_type("Out")));
  } else {
    c.set("Out", c.node("pow", {x}, {of_f32("y", c.attr<float>("factor"))}, c.out_type("Out")));
  }
  return Ok();
}

}  // namespace

void add_elementwise_ops(Converters& table) {
  for (const Row& row : kElementwiseRows) table.rows[row.type] = &row;
  for (const BinaryName& row : kBinaryNames) table.functions[row.type] = binary;
  table.functions["minus"] = minus;
  table.functions["pow"] = power;
}

}  // namespace millrace::interchange::pir
