// Rows of tables by id.

#include "interchange/pir/rows.h"
#include "interchange/source_ops.h"

namespace millrace::interchange::pir {
namespace {

Status lookup_table(OpContext& c) {
  const bool is_v2 = c.op().type() == "lookup_table_v2";
  MILLRACE_RETURN_IF_ERROR(read_table_attrs(c));
  Value ids = c.in("Ids");
  // Version 1 has a last axis of extent 1, which version 2 does not.
  if (!is_v2) ids = c.squeeze(ids, {c.rank("Ids") - 1});
  c.set("Out",
        c.node("embedding", {ids, c.in("W")},
               {of_i64("padding_idx", c.attr<int64_t>("padding_idx")), of_bool("sparse", false)},
               c.out_type("Out")));
  return Ok();
}

// The ids of version 1 have a last axis of extent 1.
Status one_hot(OpContext& c) {
  c.ignore({"depth"});
  if (static_cast<DType>(c.attr<int32_t>("dtype")) != DType::kFloat32)
    return c.refuse("one_hot with another element type than f32");
  if (c.attr<bool>("allow_out_of_range")) return c.refuse("one_hot with ids that are out of range");
  const bool is_v2 = c.op().type() == "one_hot_v2";
  Value ids = c.in("X");
  if (!is_v2) ids = c.squeeze(ids, {c.rank("X") - 1});
  const Value depth = c.has("depth_tensor")
                          ? c.in("depth_tensor")
                          : c.full(static_cast<double>(c.attr<int64_t>("depth")), DType::kInt32);
  c.set("Out", c.node("one_hot", {ids, depth}, {}, c.out_type("Out")));
  return Ok();
}

}  // namespace

void add_embedding_ops(Converters& table) {
  table.functions["lookup_table"] = table.functions["lookup_table_v2"] = lookup_table;
  table.functions["one_hot"] = table.functions["one_hot_v2"] = one_hot;
}

}  // namespace millrace::interchange::pir
