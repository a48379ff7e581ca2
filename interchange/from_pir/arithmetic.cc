// Arithmetic, activations and sums that differ in form from the ops of a program.

#include "interchange/from_pir/op_context.h"

namespace millrace::interchange::pir {
namespace {

// The type of the op of a program for a binary op of PIR; null for others.
const char* binary_type(llvm::StringRef name) {
  static constexpr std::pair<const char*, const char*> kNames[] = {
      {"add", "elementwise_add"},
      {"subtract", "elementwise_sub"},
      {"multiply", "elementwise_mul"},
      {"divide", "elementwise_div"},
      {"floor_divide", "elementwise_floordiv"},
      {"remainder", "elementwise_mod"},
      {"maximum", "elementwise_max"},
      {"minimum", "elementwise_min"},
      {"fmax", "elementwise_fmax"},
      {"fmin", "elementwise_fmin"},
      {"elementwise_pow", "elementwise_pow"},
      {"heaviside", "elementwise_heaviside"},
      {"equal", "equal"},
      {"not_equal", "not_equal"},
      {"less_than", "less_than"},
      {"less_equal", "less_equal"},
      {"greater_than", "greater_than"},
      {"greater_equal", "greater_equal"}};
  for (const auto& [from, to] : kNames)
    if (name == from) return to;
  return nullptr;
}

// Both align operands at the end, and each may be the larger one.
Status binary(ImportContext& c) {
  const std::string x = c.in(0);
  const std::string y = c.in(1);
  Op& op = c.append(binary_type(c.name()));
  op.set_input("X", x).set_input("Y", y);
  c.set_attr(op, "axis", AttrValue::of_int(-1));
  c.add_result(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

// An op with operand X, result Out and constant attributes.
void unary(ImportContext& c, const char* type,
           const std::vector<std::pair<const char*, AttrValue>>& attrs) {
  const std::string x = c.in(0);
  Op& op = c.append(type);
  op.set_input("X", x);
  for (const auto& [name, value] : attrs) c.set_attr(op, name, value);
  c.add_result(op, "Out", 0);
  c.finish_op(op);
}

Status relu6(ImportContext& c) {
  unary(c, "relu6", {{"threshold", AttrValue::of_float(6)}});
  return Ok();
}

Status hardswish(ImportContext& c) {
  unary(c, "hard_swish",
        {{"threshold", AttrValue::of_float(6)},
         {"scale", AttrValue::of_float(6)},
         {"offset", AttrValue::of_float(3)}});
  return Ok();
}

Status swish(ImportContext& c) {
  unary(c, "swish", {{"beta", AttrValue::of_float(1)}});
  return Ok();
}

// Of bools only: there is no op for the bits of integers.
Status bitwise_not(ImportContext& c) {
  if (const std::string x = c.in(0); c.dtype(x) != DType::kBool)
    return c.refuse("bitwise_not of integers");
  unary(c, "logical_not", {});
  return Ok();
}

Status power(ImportContext& c) {
  unary(c, "pow", {{"factor", AttrValue::of_float(static_cast<float>(c.attr<double>("y")))}});
  return Ok();
}

// Sums, extremes and the like. No axes mean all of them.
Status reduce(ImportContext& c) {
  const std::string name = c.name().str();
  const bool is_logical = name == "all" || name == "any";
  const std::string x = c.in(0);
  const std::vector<int64_t> axes =
      is_logical ? c.attr<std::vector<int64_t>>("axis") : c.ints(1, "axes");
  const bool reduces_all = name == "prod" && c.attr<bool>("reduce_all");
  Op& op = c.append(("reduce_" + name).c_str());
  op.set_input("X", x);
  c.set_attr(op, "reduce_all", AttrValue::of_bool(axes.empty() || reduces_all));
  c.set_attr(op, "dim", AttrValue::of_longs(axes.empty() ? std::vector<int64_t>{0} : axes));
  c.set_attr(op, "keep_dim", AttrValue::of_bool(c.attr<bool>("keepdim")));
  if (name == "sum") {
    const int32_t dtype = c.dtype_attr("dtype");
    c.set_attr(op, "in_dtype", AttrValue::of_int(static_cast<int32_t>(c.dtype(x))));
    c.set_attr(op, "out_dtype", AttrValue::of_int(dtype));
  }
  c.add_result(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

// Release 3 gives the LoD of the first operand to the product. Of our ops, `mul` does that, which
// multiplies by a matrix.
Status matmul(ImportContext& c) {
  const std::string x = c.in(0);
  const std::string y = c.in(1);
  const auto transposes_x = c.attr<bool>("transpose_x");
  const auto transposes_y = c.attr<bool>("transpose_y");
  const auto rank = static_cast<int64_t>(c.dims(x).size());
  const bool is_mul = rank >= 2 && c.dims(y).size() == 2 && !transposes_x && !transposes_y;
  Op& op = c.append(is_mul ? "mul" : "matmul_v2");
  op.set_input("X", x).set_input("Y", y);
  if (is_mul) {
    c.set_attr(op, "x_num_col_dims", AttrValue::of_long(rank - 1));
    c.set_attr(op, "y_num_col_dims", AttrValue::of_long(1));
  } else {
    c.set_attr(op, "trans_x", AttrValue::of_bool(transposes_x));
    c.set_attr(op, "trans_y", AttrValue::of_bool(transposes_y));
  }
  c.add_result(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

Status embedding(ImportContext& c) {
  const std::string ids = c.in(0);
  const std::string table = c.in(1);
  Op& op = c.append("lookup_table_v2");
  op.set_input("Ids", ids).set_input("W", table);
  c.set_attr(op, "padding_idx", AttrValue::of_long(c.attr<int64_t>("padding_idx")));
  c.set_attr(op, "is_sparse", AttrValue::of_bool(c.attr<bool>("sparse")));
  c.add_result(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

Status one_hot(ImportContext& c) {
  const std::string ids = c.in(0);
  const int64_t depth = c.integer(1, "the depth");
  Op& op = c.append("one_hot_v2");
  op.set_input("X", ids);
  c.set_attr(op, "depth", AttrValue::of_long(depth));
  c.set_attr(op, "dtype", AttrValue::of_int(static_cast<int32_t>(DType::kFloat32)));
  c.add_result(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

Status top_k(ImportContext& c) {
  const std::string x = c.in(0);
  const bool is_known = c.constant(1) != nullptr;
  const std::string computed = is_known ? "" : c.in(1);
  const int64_t k = is_known ? c.integer(1, "k") : 1;
  Op& op = c.append("top_k_v2");
  op.set_input("X", x);
  if (!is_known) op.set_input("K", computed);
  c.set_attr(op, "k", AttrValue::of_long(k));
  c.set_attr(op, "axis", AttrValue::of_long(c.attr<int64_t>("axis")));
  c.set_attr(op, "largest", AttrValue::of_bool(c.attr<bool>("largest")));
  c.set_attr(op, "sorted", AttrValue::of_bool(c.attr<bool>("sorted")));
  c.add_result(op, "Out", 0);
  c.add_result(op, "Indices", 1);
  c.finish_op(op);
  return Ok();
}

}  // namespace

void add_arithmetic_imports(ImportConverters& table) {
  for (const char* name :
       {"add", "subtract", "multiply", "divide", "floor_divide", "remainder", "maximum", "minimum",
        "fmax", "fmin", "elementwise_pow", "heaviside", "equal", "not_equal", "less_than",
        "less_equal", "greater_than", "greater_equal"})
    table[name] = binary;
  table["relu6"] = relu6;
  table["hardswish"] = hardswish;
  table["swish"] = swish;
  table["bitwise_not"] = bitwise_not;
  table["pow"] = power;
  for (const char* name : {"sum", "mean", "max", "min", "prod", "all", "any"}) table[name] = reduce;
  table["matmul"] = matmul;
  table["embedding"] = embedding;
  table["one_hot"] = one_hot;
  table["topk"] = top_k;
}

}  // namespace millrace::interchange::pir
