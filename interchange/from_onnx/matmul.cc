// Products of matrices.

#include "interchange/from_onnx/node_context.h"

namespace millrace::interchange {
namespace {

Status matmul_node(NodeContext& c) {
  c.set(0, c.op("matmul_v2", {{"X", {c.in(0)}}, {"Y", {c.in(1)}}},
                {bool_attr("trans_x", false), bool_attr("trans_y", false)}));
  return Ok();
}

std::string times_number(NodeContext& c, const std::string& x, float factor) {
  return factor == 1 ? x : c.op("scale", {{"X", {x}}}, {float_attr("scale", factor)});
}

// alpha * A * B + beta * C
Status gemm_node(NodeContext& c) {
  if (c.opset() < 7) c.ignore({"broadcast"});  // which later operator sets always do
  const bool trans_a = c.attr_bool("transA", false);
  const bool trans_b = c.attr_bool("transB", false);
  const float alpha = c.attr_float("alpha", 1);
  const float beta = c.attr_float("beta", 1);
  const std::string a = c.in(0);
  const bool is_float = c.dtype(a) == DType::kFloat32 || c.dtype(a) == DType::kFloat64;
  if (!is_float && (alpha != 1 || beta != 1)) return c.refuse("factors of integers");
  std::string out = c.op("matmul_v2", {{"X", {a}}, {"Y", {c.in(1)}}},
                         {bool_attr("trans_x", trans_a), bool_attr("trans_y", trans_b)});
  out = times_number(c, out, alpha);
  if (c.has(2)) out = c.binary("elementwise_add", out, times_number(c, c.in(2), beta));
  c.set(0, out);
  return Ok();
}

}  // namespace

void add_matmul_nodes(NodeTable& table) {
  table["MatMul"] = {matmul_node, 2, 2};
  table["Gemm"] = {gemm_node, 2, 3};
}

}  // namespace millrace::interchange
