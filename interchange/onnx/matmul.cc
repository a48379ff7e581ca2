// Products of matrices.

#include "interchange/onnx/op_context.h"

namespace millrace::interchange {
namespace {

// The matrix whose rows are the first `rows` dims.
std::string as_matrix(OpContext& c, const std::string& value, int64_t rank, int64_t rows) {
  return rank == 2 && rows == 1 ? value : c.node("Flatten", {value}, {{"axis", rows}});
}

Status mul(OpContext& c) {
  const auto x_rows = c.attr<int64_t>("x_num_col_dims");
  const auto y_rows = c.attr<int64_t>("y_num_col_dims");
  const std::string x = c.in("X");
  const std::string y = c.in("Y");
  if (c.rank("Y") == 2 && y_rows == 1 && x_rows == c.rank("X") - 1) {
    c.set("Out", c.node("MatMul", {x, y}));
    return Ok();
  }
  std::string out = c.node(
      "MatMul", {as_matrix(c, x, c.rank("X"), x_rows), as_matrix(c, y, c.rank("Y"), y_rows)});
  if (x_rows != 1 || c.rank("Y") - y_rows != 1) {
    const std::string leading = c.node("Shape", {x}, {{"start", int64_t{0}}, {"end", x_rows}});
    const std::string trailing = c.node("Shape", {y}, {{"start", y_rows}});
    const std::string dims = c.node("Concat", {leading, trailing}, {{"axis", int64_t{0}}});
    out = c.node("Reshape", {out, dims}, {{"allowzero", int64_t{1}}});
  }
  c.set("Out", out);
  return Ok();
}

std::string swap_last(OpContext& c, const std::string& value, int64_t rank) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < rank; ++i) order.push_back(i);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return c.transpose(value, order);
}

// ONNX Runtime 1.32 fuses the transposition of a matrix with its product, and ignores it where the
// other operand is a vector. So the vector is a matrix with one column.
std::string times_vector(OpContext& c, const std::string& matrices, int64_t rank,
                         const std::string& vector) {
  return c.squeeze(c.node("MatMul", {matrices, c.unsqueeze(vector, {1})}), {rank - 1});
}

Status matmul(OpContext& c) {
  const bool is_v2 = c.op().type() == "matmul_v2";
  const bool trans_x = c.attr<bool>(is_v2 ? "trans_x" : "transpose_X");
  const bool trans_y = c.attr<bool>(is_v2 ? "trans_y" : "transpose_Y");
  const int64_t rank_x = c.rank("X");
  const int64_t rank_y = c.rank("Y");
  std::string x = c.in("X");
  std::string y = c.in("Y");
  if (rank_x == 0 || rank_y == 0) return c.refuse("a product with a scalar operand");
  if (!is_v2 && (rank_x == 1 || rank_y == 1)) return c.refuse("a product with a vector operand");
  if (trans_x && rank_x > 1) x = swap_last(c, x, rank_x);
  if (trans_y && rank_y > 1) y = swap_last(c, y, rank_y);
  const bool has_vector = rank_x > 1 && rank_y == 1;
  std::string out = has_vector ? times_vector(c, x, rank_x, y) : c.node("MatMul", {x, y});
  if (!is_v2) {
    const auto alpha = c.attr<float>("alpha");
    if (alpha != 1) out = c.node("Mul", {out, c.scalar(alpha, c.dtype("X"))});
  }
  c.set("Out", out);
  return Ok();
}

Status batched_product(OpContext& c) {
  c.set("Out", c.node("MatMul", {c.in("X"), c.in("Y")}));
  return Ok();
}

Status matrix_vector(OpContext& c) {
  c.set("Out", times_vector(c, c.in("X"), 2, c.in("Vec")));
  return Ok();
}

Status addmm(OpContext& c) {
  c.set("Out", c.node("Gemm", {c.in("X"), c.in("Y"), c.in("Input")},
                      {{"alpha", c.attr<float>("Alpha")}, {"beta", c.attr<float>("Beta")}}));
  return Ok();
}

Status fully_connected(OpContext& c) {
  const auto rows = c.attr<int64_t>("in_num_col_dims");
  if (rows != c.rank("Input") - 1) return c.refuse("fc with in_num_col_dims before the last dim");
  std::string out = c.node("MatMul", {c.in("Input"), c.in("W")});
  if (c.has("Bias")) out = c.node("Add", {out, c.reshape(c.in("Bias"), {-1})});
  const auto activation = c.attr<std::string>("activation_type");
  if (activation == "relu")
    out = c.node("Relu", {out});
  else if (!activation.empty())
    return c.refuse("fc with the activation " + activation);
  c.set("Out", out);
  return Ok();
}

}  // namespace

void add_matmul_ops(ConverterTable& table) {
  table["mul"] = mul;
  table["matmul"] = table["matmul_v2"] = matmul;
  table["bmm"] = batched_product;
  table["mv"] = matrix_vector;
  table["addmm"] = addmm;
  table["fc"] = fully_connected;
}

}  // namespace millrace::interchange
