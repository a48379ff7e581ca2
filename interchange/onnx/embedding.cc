// Rows of tables by id.

#include "interchange/onnx/op_context.h"
#include "interchange/source_ops.h"

namespace millrace::interchange {
namespace {

Status lookup_table(OpContext& c) {
  const bool is_v2 = c.op().type() == "lookup_table_v2";
  MILLRACE_RETURN_IF_ERROR(read_table_attrs(c));
  std::string ids = c.in("Ids");
  // Version 1 has a last axis of extent 1, which version 2 does not.
  if (!is_v2) ids = c.squeeze(ids, {c.rank("Ids") - 1});
  std::string rows = c.node("Gather", {c.in("W"), ids}, {{"axis", int64_t{0}}});
  auto padding = c.attr<int64_t>("padding_idx");
  if (padding != -1) {
    if (padding < 0) return c.refuse("a negative padding_idx");
    const std::string is_padding =
        c.node("Equal", {c.cast(ids, DType::kInt64), c.graph().ints({padding}, {})});
    const std::string flag = c.unsqueeze(is_padding, {is_v2 ? c.rank("Ids") : c.rank("Ids") - 1});
    rows = c.node("Where", {flag, c.scalar(0, c.dtype("W")), rows});
  }
  c.set("Out", rows);
  return Ok();
}

}  // namespace

void add_embedding_ops(ConverterTable& table) {
  table["lookup_table"] = table["lookup_table_v2"] = lookup_table;
}

}  // namespace millrace::interchange
