// Products of matrices.

#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {
namespace {

constexpr Row kMatmulRows[] = {
    {"addmm", "addmm", "Input X Y", "beta<Beta:f32 alpha<Alpha:f32", "Out"},
    {"bilinear_tensor_product", "bilinear", "X Y Weight Bias?", "", "Out"},
    {"bmm", "bmm", "X Y", "", "Out"},
    {"cross", "cross", "X Y", "axis<dim:i32", "Out"},
    {"dist", "dist", "X Y", "p:f32", "Out"},
    {"dot", "dot", "X Y", "", "Out"},
    {"matmul_v2", "matmul", "X Y", "transpose_x<trans_x:bool transpose_y<trans_y:bool", "Out"},
    {"mv", "mv", "X Vec", "", "Out"},
};

Value product(OpContext& c, const Value& x, const Value& y, const TensorType& type) {
  return c.node("matmul", {x, y}, {of_bool("transpose_x", false), of_bool("transpose_y", false)},
                type);
}

// The product of x as a matrix of `rows` dims with y; its leading dims are those of x.
StatusOr<Value> product_of_rows(OpContext& c, const Value& x, int64_t rows, const Value& y,
                                const TensorType& type) {
  const auto rank = static_cast<int64_t>(x.type().dims.size());
  const auto rank_y = static_cast<int64_t>(y.type().dims.size());
  if (rank_y == 2 && rows == rank - 1) return product(c, x, y, type);
  const int64_t columns = static_cast<int64_t>(type.dims.size()) - rows;
  const Value left = c.as_matrix(x, rows);
  const Value right = c.as_matrix(y, rank_y - columns);
  const Value out = product(
      c, left, right, {.dtype = type.dtype, .dims = {left.type().dims[0], right.type().dims[1]}});
  if (rows == 1 && columns == 1) return out;
  std::vector<int64_t> dims(type.dims.begin(), type.dims.end());
  if (std::count(dims.begin(), dims.end(), -1) > 1)
    return c.refuse("a product of tensors with several unknown extents");
  return c.reshape(out, dims);
}

Status mul(OpContext& c) {
  const auto x_rows = c.attr<int64_t>("x_num_col_dims");
  c.ignore({"y_num_col_dims"});
  const Value x = c.in("X");
  const Value y = c.in("Y");
  MILLRACE_ASSIGN_OR_RETURN(const Value out, product_of_rows(c, x, x_rows, y, c.out_type("Out")));
  const bool is_direct = c.rank("Y") == 2 && c.rank("X") == x_rows + 1;
  c.set("Out", is_direct ? out : c.with_lod_of("X", out));
  return Ok();
}

Status matmul(OpContext& c) {
  const std::vector<Attr> attrs = {of_bool("transpose_x", c.attr<bool>("transpose_X")),
                                   of_bool("transpose_y", c.attr<bool>("transpose_Y"))};
  const TensorType type = c.out_type("Out");
  Value out = c.node("matmul", {c.in("X"), c.in("Y")}, attrs, type);
  const auto alpha = c.attr<float>("alpha");
  if (alpha != 1.0F) {
    out = c.node("scale", {out, c.full(alpha, DType::kFloat32)},
                 {of_f32("bias", 0), of_bool("bias_after_scale", true)}, type);
  }
  c.set("Out", out);
  return Ok();
}

// A product, a bias and perhaps a function, joined by a rewrite of the original.
Status fc(OpContext& c) {
  const auto function = c.attr<std::string>("activation_type");
  if (c.attr<bool>("padding_weights")) return c.refuse("fc with padded weights");
  if (!function.empty() && function != "relu") return c.refuse("fc with the function " + function);
  const TensorType type = c.out_type("Out");
  MILLRACE_ASSIGN_OR_RETURN(
      Value out,
      product_of_rows(c, c.in("Input"), c.attr<int64_t>("in_num_col_dims"), c.in("W"), type));
  if (c.has("Bias")) out = c.node("add", {out, c.reshape(c.in("Bias"), {-1})}, {}, type);
  if (function == "relu") out = c.node("relu", {out}, {}, type);
  c.set("Out", out);
  return Ok();
}

}  // namespace

void add_matmul_ops(Converters& table) {
  for (const Row& row : kMatmulRows) table.rows[row.type] = &row;
  table.functions["mul"] = mul;
  table.functions["matmul"] = matmul;
  table.functions["fc"] = fc;
}

}  // namespace millrace::interchange::pir
