// Sums, extremes and norms over axes.

#include <set>

#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {
namespace {

constexpr Row kReduceRows[] = {
    {"cumprod", "cumprod", "X", "dim:i32 exclusive:bool=false reverse:bool=false", "Out"},
    {"cumsum", "cumsum", "X @axis:i32", "flatten:bool exclusive:bool reverse:bool", "Out"},
    {"l1_norm", "l1_norm", "X", "", "Out"},
    {"logsumexp", "logsumexp", "X", "axis:i32s keepdim:bool reduce_all:bool", "Out"},
    {"mean", "mean_all", "X", "", "Out"},
    {"p_norm", "p_norm", "X", "porder:f32 axis:i32 epsilon:f32 keepdim:bool asvector:bool", "Out"},
    {"squared_l2_norm", "squared_l2_norm", "X", "", "Out"},
};

// No axes mean all of them.
StatusOr<std::vector<int64_t>> reduced_axes(OpContext& c) {
  const int64_t rank = c.rank("X");
  std::set<int64_t> axes;
  const std::vector<int64_t> stated = c.ints("dim");
  for (const int64_t axis : stated) axes.insert(axis < 0 ? axis + rank : axis);
  if (axes.size() != stated.size()) return c.refuse("an axis that is stated twice");
  if (c.attr<bool>("reduce_all") || static_cast<int64_t>(axes.size()) == rank) axes.clear();
  return std::vector<int64_t>(axes.begin(), axes.end());
}

// The result has the element type that the op states; the one that it reads has no influence.
Status reduce(OpContext& c) {
  const std::string type = c.op().type().drop_front(std::string("reduce_").size()).str();
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, reduced_axes(c));
  const TensorType out = c.out_type("Out");
  const Attr keep = of_bool("keepdim", c.attr<bool>("keep_dim"));
  c.ignore({"in_dtype", "out_dtype"});
  const Value x = c.in("X");
  Value result;
  if (type == "all" || type == "any") {
    result =
        c.node(type, {x}, {of_i64s("axis", axes), keep}, {.dtype = DType::kBool, .dims = out.dims});
  } else if (type == "sum") {
    result = c.node("sum", {x, c.int_list(axes)}, {of_dtype("dtype", out.dtype), keep}, out);
  } else {
    std::vector<Attr> attrs = {keep};
    if (type == "prod") attrs.push_back(of_bool("reduce_all", axes.empty()));
    TensorType same = out;
    same.dtype = x.type().dtype;
    result = c.node(type, {x, c.int_list(axes)}, attrs, same);
  }
  c.set("Out", c.cast(result, out.dtype));
  return Ok();
}

Status frobenius_norm(OpContext& c) {
  const bool is_all = c.attr<bool>("reduce_all");
  c.set("Out",
        c.node("frobenius_norm", {c.in("X"), c.int_list(c.ints("dim"))},
               {of_bool("keep_dim", c.attr<bool>("keep_dim")), of_bool("reduce_all", is_all)},
               c.out_type("Out")));
  return Ok();
}

}  // namespace

void add_reduce_ops(Converters& table) {
  for (const Row& row : kReduceRows) table.rows[row.type] = &row;
  for (const char* type : {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod",
                           "reduce_all", "reduce_any"})
    table.functions[type] = reduce;
  table.functions["frobenius_norm"] = frobenius_norm;
}

}  // namespace millrace::interchange::pir
