#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

Status infer_to_tensor(InferContext& ctx) {
  VarMeta meta = ctx.input("X");
  if (!meta.has_shape) return Ok();
  meta.kind = VarKind::kLodTensor;
  ctx.set_output("Out", std::move(meta));
  return Ok();
}

}  // namespace

void add_embedding_selected_rows(OpRegistry& registry) {
  registry.add(OpDef("merge_selected_rows")
                   .doc("adds rows of the same number; row numbers become distinct")
                   .input("X", "rows of a table")
                   .output("Out", "each row number once")
                   .infer(infer_unary));
  registry.add(OpDef("get_tensor_from_selected_rows")
                   .doc("the value block of SELECTED_ROWS")
                   .input("X", "rows of a table")
                   .output("Out", "one row for each stored row")
                   .infer(infer_to_tensor));
}

}  // namespace millrace::ops
