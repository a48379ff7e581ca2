// Elements chosen by index or by value.

#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {
namespace {

constexpr Row kIndexRows[] = {
    {"arg_max", "argmax", "X @axis:i64", "keepdims:bool flatten:bool dtype:dtype", "Out"},
    {"arg_min", "argmin", "X @axis:i64", "keepdims:bool flatten:bool dtype:dtype", "Out"},
    {"argsort", "argsort", "X", "axis:i32 descending:bool stable:bool=false", "Out Indices"},
    {"gather", "gather", "X Index @axis:i32|Axis", "!overwrite", "Out"},
    {"gather_nd", "gather_nd", "X Index", "", "Out"},
    {"gather_tree", "gather_tree", "Ids Parents", "", "Out"},
    {"index_sample", "index_sample", "X Index", "", "Out"},
    {"index_select", "index_select", "X Index", "axis<dim:i32", "Out"},
    {"kthvalue", "kthvalue", "X", "k:i64 axis:i32 keepdim:bool", "Out Indices"},
    {"masked_select", "masked_select", "X Mask", "", "Y"},
    {"multiplex", "multiplex", "X* Ids", "", "Out"},
    {"scatter", "scatter", "X Ids Updates", "overwrite:bool", "Out"},
    {"scatter_nd_add", "scatter_nd_add", "X Index Updates", "", "Out"},
    {"shard_index", "shard_index", "X", "index_num:i32 nshards:i32 shard_id:i32 ignore_value:i32",
     "Out"},
    {"take_along_axis", "take_along_axis", "Input Index", "axis<Axis:i32", "Result"},
    {"where", "where", "Condition X Y", "", "Out"},
    {"where_index", "nonzero", "Condition", "", "Out"},
};

Status top_k(OpContext& c) {
  const bool is_v2 = c.op().type() == "top_k_v2";
  const auto k = c.attr<int64_t>("k");
  const std::vector<Value> results = c.nodes(
      "topk", {c.in("X"), c.has("K") ? c.in("K") : c.full(static_cast<double>(k), DType::kInt32)},
      {of_i32("axis", is_v2 ? c.attr<int64_t>("axis") : -1),
       of_bool("largest", !is_v2 || c.attr<bool>("largest")),
       of_bool("sorted", !is_v2 || c.attr<bool>("sorted"))},
      {result_of(c.out_type("Out")), result_of(c.out_type("Indices"))});
  c.set("Out", results[0]);
  c.set("Indices", results[1]);
  return Ok();
}

// The kernel of release 3 adds to wrong elements where the axis is negative.
Status put_along_axis(OpContext& c) {
  c.set("Result", c.node("put_along_axis", {c.in("Input"), c.in("Index"), c.in("Value")},
                         {of_i32("axis", c.axis("Axis", c.rank("Input"))),
                          of_string("reduce", c.attr<std::string>("Reduce")),
                          of_bool("include_self", c.attr<bool>("Include_self"))},
                         c.out_type("Result")));
  return Ok();
}

// Without sorting, the original keeps the order of the first occurrences, which PIR does not know.
Status unique(OpContext& c) {
  if (!c.attr<bool>("is_sorted")) return c.refuse("unique values in the order of their occurrence");
  const std::vector<Value> results = c.nodes(
      "unique", {c.in("X")},
      {of_bool("return_index", c.attr<bool>("return_index") || c.wants("Indices")),
       of_bool("return_inverse", c.attr<bool>("return_inverse") || c.wants("Index")),
       of_bool("return_counts", c.attr<bool>("return_counts") || c.wants("Counts")),
       of_i32s("axis", c.ints("axis")),
       of_dtype("dtype", static_cast<DType>(c.attr<int32_t>("dtype"))), of_bool("is_sorted", true)},
      {result_of(c.out_type("Out")), result_of(c.out_type("Indices")),
       result_of(c.out_type("Index")), result_of(c.out_type("Counts"))});
  size_t k = 0;
  for (const char* slot : {"Out", "Indices", "Index", "Counts"}) c.set(slot, results[k++]);
  return Ok();
}

}  // namespace

void add_index_ops(Converters& table) {
  for (const Row& row : kIndexRows) table.rows[row.type] = &row;
  table.functions["put_along_axis"] = put_along_axis;
  table.functions["top_k"] = table.functions["top_k_v2"] = top_k;
  table.functions["unique"] = unique;
}

}  // namespace millrace::interchange::pir
