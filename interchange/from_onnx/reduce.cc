// Reductions along axes, and sorting.

#include <algorithm>
#include <numeric>

#include "interchange/from_onnx/node_context.h"

namespace millrace::interchange {
namespace {

struct Axes {
  std::vector<int64_t> axes;
  bool keep = true;
  bool is_noop = false;  ///< no axes, which here means that nothing is reduced
};

// Axes are an attribute up to some operator set, then an input.
Axes read_axes(NodeContext& c, const std::string& x, int64_t first_with_input) {
  Axes found;
  found.keep = c.attr_bool("keepdims", true);
  if (c.opset() < first_with_input) {
    found.axes = c.attr_ints("axes");
  } else {
    if (c.has(1)) found.axes = c.fixed_ints(1, "axes");
    found.is_noop = c.attr_bool("noop_with_empty_axes", false) && found.axes.empty();
  }
  const int64_t rank = c.rank(x);
  for (int64_t& axis : found.axes) axis = c.axis_of(axis, rank);
  if (found.axes.empty() && !found.is_noop) {
    found.axes.resize(static_cast<size_t>(rank));
    std::iota(found.axes.begin(), found.axes.end(), 0);
  }
  return found;
}

std::string reduced(NodeContext& c, const char* type, const std::string& x, const Axes& axes) {
  if (axes.is_noop || c.rank(x) == 0) return x;
  const bool is_all = static_cast<int64_t>(axes.axes.size()) == c.rank(x);
  return c.op(type, {{"X", {x}}},
              {ints_attr("dim", axes.axes), bool_attr("keep_dim", axes.keep),
               bool_attr("reduce_all", is_all)});
}

bool is_float_type(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16;
}

// Functions before and after a sum make the other reductions.
Status reduce_node(NodeContext& c) {
  static const auto& names = *new std::map<std::string, const char*>{
      {"ReduceSum", "reduce_sum"},   {"ReduceMean", "reduce_mean"},
      {"ReduceMax", "reduce_max"},   {"ReduceMin", "reduce_min"},
      {"ReduceProd", "reduce_prod"}, {"ReduceL1", "reduce_sum"},
      {"ReduceL2", "reduce_sum"},    {"ReduceSumSquare", "reduce_sum"},
      {"ReduceLogSum", "reduce_sum"}};
  std::string x = c.in(0);
  const std::string& type = c.type();
  const Axes axes = read_axes(c, x, type == "ReduceSum" ? 13 : 18);
  const bool is_plain =
      type == "ReduceSum" || type == "ReduceMax" || type == "ReduceMin" || type == "ReduceProd";
  if (!is_plain && !is_float_type(c.dtype(x))) return c.refuse("this reduction of integers");
  for (const int64_t axis : axes.axes)
    if (c.extent(x, axis) == 0) return c.refuse("a reduction of no elements");
  if (type == "ReduceL1") x = c.op("abs", {{"X", {x}}});
  if (type == "ReduceL2" || type == "ReduceSumSquare") x = c.binary("elementwise_mul", x, x);
  std::string out = reduced(c, names.at(type), x, axes);
  if (type == "ReduceL2") out = c.op("sqrt", {{"X", {out}}});
  if (type == "ReduceLogSum") out = c.op("log", {{"X", {out}}});
  c.set(0, out);
  return Ok();
}

// The largest element is subtracted first, so that nothing overflows.
Status log_sum_exp_node(NodeContext& c) {
  const std::string x = c.in(0);
  const Axes axes = read_axes(c, x, 18);
  if (axes.is_noop || c.rank(x) == 0 || !is_float_type(c.dtype(x)))
    return c.refuse("the logarithm of a sum without axes, or of integers");
  for (const int64_t axis : axes.axes)
    if (c.extent(x, axis) == 0) return c.refuse("a reduction of no elements");
  c.set(0, c.op("logsumexp", {{"X", {x}}},
                {ints_attr("axis", axes.axes), bool_attr("keepdim", axes.keep),
                 bool_attr("reduce_all", static_cast<int64_t>(axes.axes.size()) == c.rank(x))}));
  return Ok();
}

Status arg_node(NodeContext& c) {
  if (c.attr_bool("select_last_index", false)) return c.refuse("the last of equal elements");
  const std::string x = c.in(0);
  if (c.rank(x) == 0) return c.refuse("a scalar");
  const int64_t axis = c.attr_axis("axis", 0, c.rank(x));
  c.set(0, c.op(c.type() == "ArgMax" ? "arg_max" : "arg_min", {{"X", {x}}},
                {int_attr("axis", axis), bool_attr("keepdims", c.attr_bool("keepdims", true)),
                 bool_attr("flatten", false), dtype_attr("dtype", DType::kInt64)}));
  return Ok();
}

Status top_k_node(NodeContext& c) {
  const std::string x = c.in(0);
  const int64_t axis = c.attr_axis("axis", -1, c.rank(x));
  const bool largest = c.attr_bool("largest", true);
  const bool sorted = c.attr_bool("sorted", true);
  std::vector<SlotVars> inputs = {{"X", {x}}};
  std::vector<OpAttr> attrs = {int_attr("axis", axis), bool_attr("largest", largest),
                               bool_attr("sorted", sorted)};
  int64_t k = -1;
  if (c.opset() < 10) {
    k = c.attr_int("k", 0);
  } else if (const auto known = c.ints(c.in(1)); known && known->size() == 1) {
    k = (*known)[0];
  } else {
    inputs.push_back({"K", {c.in(1)}});
  }
  if (k >= 0) {
    if (k < 1) return c.refuse("k below 1");
    attrs.push_back(int_attr("k", k));
  }
  const std::vector<std::string> outs =
      c.ops("top_k_v2", inputs, attrs, {{"Out", 1}, {"Indices", 1}});
  c.set(0, outs[0]);
  c.set(1, outs[1]);
  return Ok();
}

Status cumsum_node(NodeContext& c) {
  const std::string x = c.in(0);
  const std::vector<int64_t> axis = c.fixed_ints(1, "axes");
  if (axis.size() != 1) return c.refuse("an axis that is not one number");
  c.set(0,
        c.op("cumsum", {{"X", {x}}},
             {int_attr("axis", c.axis_of(axis[0], c.rank(x))),
              bool_attr("exclusive", c.attr_bool("exclusive", false)),
              bool_attr("reverse", c.attr_bool("reverse", false)), bool_attr("flatten", false)}));
  return Ok();
}

}  // namespace

void add_reduce_nodes(NodeTable& table) {
  for (const char* type : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd",
                           "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum"})
    table[type] = {reduce_node, 1, 2};
  table["ReduceLogSumExp"] = {log_sum_exp_node, 1, 2};
  table["ArgMax"] = table["ArgMin"] = {arg_node};
  table["TopK"] = {top_k_node, 1, 2};
  table["CumSum"] = {cumsum_node, 2, 2};
}

}  // namespace millrace::interchange
