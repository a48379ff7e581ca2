#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

// Rows of a table by id. Sparse gradients are SELECTED_ROWS of the table's shape.
namespace millrace::ops {
namespace lookup_ops {
namespace {

using Strings = std::vector<std::string>;

Status infer_rows(InferContext& ctx, bool drops_last_dim) {
  const VarMeta& table = ctx.input("W");
  const VarMeta& ids = ctx.input("Ids");
  if (!dims_known(table)) return Ok();
  if (table.rank() != 2)
    return ctx.error("'W' has shape {}, expected rank 2", dims_text(table.dims));
  if (!dims_known(ids)) return Ok();
  Dims dims = ids.dims;
  if (drops_last_dim) {
    if (dims.empty() || !dims_agree(dims.back(), 1)) {
      return ctx.error("'Ids' has shape {}, expected a last dim of 1", dims_text(ids.dims));
    }
    dims.pop_back();
  }
  dims.push_back(table.dims[1]);
  ctx.set_output("Out", tensor_with_lod_of(ids, table.dtype, dims));
  return Ok();
}

Status infer_v1(InferContext& ctx) {
  return infer_rows(ctx, /*drops_last_dim=*/true);
}
Status infer_v2(InferContext& ctx) {
  return infer_rows(ctx, /*drops_last_dim=*/false);
}

Status infer_grad(InferContext& ctx) {
  if (!ctx.has_input("W")) return Ok();
  VarMeta meta = ctx.input("W");
  const bool sparse = ctx.attr<bool>("is_sparse");  // regardless of is_distributed
  meta.kind = sparse ? VarKind::kSelectedRows : VarKind::kLodTensor;
  meta.lod_level = 0;
  meta.lod = {};
  ctx.set_output("W@GRAD", std::move(meta));
  return Ok();
}

bool is_newer(llvm::StringRef type) {
  return type.startswith("lookup_table_v2");
}

// Only the older op has attributes for tables on servers.
OpDef& attrs(OpDef& def, bool newer) {
  if (!newer) {
    def.attr("entry", "none", "which ids a growing table admits")
        .attr("table_class", "none", "kind of table on the servers");
  }
  return def.attr("is_sparse", false, "the gradient is SELECTED_ROWS")
      .attr("is_distributed", false, "the table is stored on the servers")
      .attr("padding_idx", int64_t{-1}, "id whose row counts as zero; -1: none")
      .attr("remote_prefetch", false, "rows are fetched from the servers")
      .attr("entry_config", "", "old form of entry")
      .attr("table_names", Strings{}, "slice of the table on each server")
      .attr("trainer_id", 0, "id of this trainer")
      .range(0)
      .attr("slot", 0, "number of the input feature")
      .attr("grad_inplace", false, "no effect on results")
      .attr("epmap", Strings{}, "server of each slice, host:port")
      .attr("height_sections", std::vector<int64_t>{}, "rows of each slice")
      .range(0);
}

OpDef lookup(llvm::StringRef type, llvm::StringRef grad_type, llvm::StringRef ids_doc,
             llvm::StringRef out_doc, InferFn infer) {
  OpDef def(type);
  def.doc("rows of a table by id")
      .input("W", "the table [rows, width]", Arity::kOne, kTensorLike)
      .input("Ids", ids_doc)
      .output("Out", out_doc)
      .infer(infer)
      .grad({grad_type, {"Ids", "Out@GRAD", "W"}, {"W@GRAD"}, {}});
  return attrs(def, is_newer(type));
}

OpDef lookup_grad(llvm::StringRef type) {
  OpDef def(type);
  def.doc("gradient of the table; by rows if is_sparse")
      .input("W", "the table", Arity::kOptional, kTensorLike)
      .input("Ids", "the ids")
      .input("Out", "rows of the forward op; not used", Arity::kOptional)
      .input("Out@GRAD", "gradients of the rows")
      .output("W@GRAD", "gradient of the table", Arity::kOptional)
      .infer(infer_grad);
  return attrs(def, is_newer(type));
}

}  // namespace
}  // namespace lookup_ops

void add_embedding_lookup(OpRegistry& registry) {
  using namespace lookup_ops;
  registry.add(lookup("lookup_table", "lookup_table_grad", "int64, last dim 1",
                      "dims of Ids without the last one, then the width", infer_v1));
  registry.add(lookup_grad("lookup_table_grad"));
  registry.add(lookup("lookup_table_v2", "lookup_table_v2_grad", "integers of any shape",
                      "dims of Ids, then the width", infer_v2));
  registry.add(lookup_grad("lookup_table_v2_grad"));
}

}  // namespace millrace::ops
