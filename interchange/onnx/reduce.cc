// Reductions along axes.

#include <numeric>

#include "interchange/onnx/op_context.h"

namespace millrace::interchange {
namespace {

const std::map<std::string, std::string>& reductions() {
  static const auto& names = *new std::map<std::string, std::string>{{"reduce_sum", "ReduceSum"},
                                                                     {"reduce_mean", "ReduceMean"},
                                                                     {"reduce_max", "ReduceMax"},
                                                                     {"reduce_min", "ReduceMin"},
                                                                     {"reduce_prod", "ReduceProd"}};
  return names;
}

std::vector<int64_t> all_axes(int64_t rank) {
  std::vector<int64_t> axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

// Programs of old releases have one element where new ones have a scalar.
std::string with_rank(OpContext& c, const std::string& value, int64_t rank, llvm::StringRef slot) {
  if (rank == 0 && c.out_dims(slot).size() == 1) return c.reshape(value, {1});
  return value;
}

// The attributes dim and reduce_all.
std::vector<int64_t> reduced_axes(OpContext& c, int64_t rank) {
  std::vector<int64_t> axes = c.ints("dim");
  for (int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
  return c.attr<bool>("reduce_all") || axes.empty() ? all_axes(rank) : axes;
}

Status reduce(OpContext& c) {
  const int64_t rank = c.rank("X");
  const std::vector<int64_t> axes = reduced_axes(c, rank);
  const bool keep = c.attr<bool>("keep_dim");
  c.ignore({"in_dtype"});
  std::string x = c.in("X");
  const auto wanted = c.attr<int32_t>("out_dtype");
  if (wanted >= 0 && static_cast<DType>(wanted) != c.dtype("X"))
    x = c.cast(x, static_cast<DType>(wanted));
  else if (c.out_dtype("Out") != c.dtype("X"))
    x = c.cast(x, c.out_dtype("Out"));
  if (rank == 0) {
    c.set("Out", with_rank(c, c.node("Identity", {x}), 0, "Out"));
    return Ok();
  }
  const std::string out = c.reduce(reductions().at(c.op().type().str()), x, axes, keep);
  const int64_t left = keep ? rank : rank - static_cast<int64_t>(axes.size());
  c.set("Out", with_rank(c, out, left, "Out"));
  return Ok();
}

// ONNX has no reductions of bools: any is a maximum, all a minimum.
Status reduce_bools(OpContext& c) {
  const int64_t rank = c.rank("X");
  const std::vector<int64_t> axes = reduced_axes(c, rank);
  const bool keep = c.attr<bool>("keep_dim");
  c.ignore({"in_dtype", "out_dtype"});
  const std::string numbers = c.cast(c.in("X"), DType::kInt32);
  const std::string type = c.op().type() == "reduce_any" ? "ReduceMax" : "ReduceMin";
  const std::string out = rank == 0 ? numbers : c.reduce(type, numbers, axes, keep);
  const int64_t left = keep ? rank : rank - static_cast<int64_t>(axes.size());
  c.set("Out", c.cast(with_rank(c, out, left, "Out"), DType::kBool));
  return Ok();
}

Status mean(OpContext& c) {
  for (const int64_t dim : c.dims("X"))
    if (dim == 0) return c.refuse("the mean of no elements");
  const int64_t rank = c.rank("X");
  const std::string x = c.in("X");
  const std::string out =
      rank == 0 ? c.node("Identity", {x}) : c.reduce("ReduceMean", x, all_axes(rank), false);
  c.set("Out", with_rank(c, out, 0, "Out"));
  return Ok();
}

Status arg_extreme(OpContext& c) {
  const bool is_max = c.op().type() == "arg_max";
  std::string x = c.in("X");
  int64_t rank = c.rank("X");
  const bool keep = c.attr<bool>("keepdims");
  int64_t axis = c.axis("axis", rank);
  if (c.attr<bool>("flatten")) {
    if (keep) return c.refuse("the position in the flattened tensor with keepdims");
    x = c.reshape(x, {-1});
    axis = 0;
    rank = 1;
  }
  if (rank == 0) return c.refuse("the position of the extreme of a scalar");
  std::string out =
      c.node(is_max ? "ArgMax" : "ArgMin", {x}, {{"axis", axis}, {"keepdims", int64_t{keep}}});
  c.ignore({"dtype"});
  out = with_rank(c, out, rank - 1, "Out");
  if (c.out_dtype("Out") != DType::kInt64) out = c.cast(out, c.out_dtype("Out"));
  c.set("Out", out);
  return Ok();
}

Status top_k(OpContext& c) {
  const bool is_v2 = c.op().type() == "top_k_v2";
  const std::string x = c.in("X");
  c.ignore({"k"});
  if (!c.has("K") && c.attr<int64_t>("k") < 1)
    return c.refuse("k below 1, which takes all elements");
  const std::string k = c.has("K") ? c.cast(c.reshape(c.in("K"), {1}), DType::kInt64)
                                   : c.graph().ints({c.attr<int64_t>("k")});
  const int64_t axis = is_v2 ? c.axis("axis", c.rank("X")) : c.rank("X") - 1;
  const bool largest = !is_v2 || c.attr<bool>("largest");
  if (is_v2) c.ignore({"sorted"});
  const std::vector<std::string> outs =
      c.nodes("TopK", {x, k}, {{"axis", axis}, {"largest", int64_t{largest}}}, 2);
  c.set("Out", outs[0]);
  c.set("Indices", outs[1]);
  return Ok();
}

Status argsort(OpContext& c) {
  const std::string x = c.in("X");
  const int64_t rank = c.rank("X");
  if (rank == 0) return c.refuse("argsort of a scalar");
  const int64_t axis = c.axis("axis", rank);
  const std::vector<std::string> outs =
      c.nodes("TopK", {x, c.extent(x, axis)},
              {{"axis", axis}, {"largest", int64_t{c.attr<bool>("descending")}}}, 2);
  c.set("Out", outs[0]);
  c.set("Indices", outs[1]);
  return Ok();
}

Status cumsum(OpContext& c) {
  std::string x = c.in("X");
  int64_t rank = c.rank("X");
  int64_t axis = c.axis("axis", rank);
  if (c.attr<bool>("flatten")) {
    x = c.reshape(x, {-1});
    axis = 0;
  }
  c.set("Out", c.node("CumSum", {x, c.graph().ints({axis}, {})},
                      {{"exclusive", int64_t{c.attr<bool>("exclusive")}},
                       {"reverse", int64_t{c.attr<bool>("reverse")}}}));
  return Ok();
}

}  // namespace

void add_reduce_ops(ConverterTable& table) {
  for (const auto& [type, name] : reductions()) table[type] = reduce;
  table["reduce_any"] = table["reduce_all"] = reduce_bools;
  table["mean"] = mean;
  table["arg_max"] = table["arg_min"] = arg_extreme;
  table["top_k"] = table["top_k_v2"] = top_k;
  table["argsort"] = argsort;
  table["cumsum"] = cumsum;
}

}  // namespace millrace::interchange
