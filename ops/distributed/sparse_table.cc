#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

// Tables whose rows are created when they are first used; spec/fleet.md sections 7 and 13.
namespace millrace::ops {
namespace {

using Strings = std::vector<std::string>;
using Longs = std::vector<int64_t>;

OpDef table_op(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .attr("tablename", "", "table of this process")
      .attr("value_names", Strings{}, "columns of the table")
      .attr("is_entry", false, "rows become usable only once the entry rule admits them")
      .side_effects();
  return def;
}

Status infer_lookup(InferContext& ctx) {
  const VarMeta& table = ctx.input("W");
  const VarMeta& ids = ctx.input("Ids");
  if (!dims_known(table) || table.rank() != 2 || !dims_known(ids) || ids.rank() == 0) return Ok();
  ctx.set_output("Out", tensor_with_lod_of(ids, table.dtype, {ids.dims[0], table.dims[1]}));
  return Ok();
}

Status infer_powers(InferContext& ctx) {
  ctx.copy("Beta1Pow", "Beta1PowOut");
  ctx.copy("Beta2Pow", "Beta2PowOut");
  return Ok();
}

// The shape of the embeddings. The old form drops the last dim of 1 of the ids.
Status infer_remote_lookup(InferContext& ctx) {
  const VarMeta& table = ctx.input("W");
  if (ctx.input_count("Ids") != ctx.output_count("Outputs")) {
    return ctx.error("'Outputs' has {} vars, expected {}, one for each var of 'Ids'",
                     ctx.output_count("Outputs"), ctx.input_count("Ids"));
  }
  if (!dims_known(table) || table.rank() != 2) return Ok();
  const bool newer = ctx.attr<std::string>("lookup_table_version") == "lookup_table_v2";
  for (size_t i = 0; i < ctx.input_count("Ids"); ++i) {
    const VarMeta& ids = ctx.input("Ids", i);
    if (!dims_known(ids)) continue;
    Dims dims = ids.dims;
    if (!newer && !dims.empty()) dims.pop_back();
    dims.push_back(table.dims[1]);
    ctx.set_output("Outputs", tensor_with_lod_of(ids, table.dtype, dims), i);
  }
  return Ok();
}

void add_local_tables(OpRegistry& registry) {
  registry.add(OpDef("lookup_sparse_table")
                   .doc("rows of a table that grows, kept as SELECTED_ROWS on a server")
                   .input("W", "the table", Arity::kOne, kAnyKind)
                   .input("Ids", "ids [n, 1]")
                   .output("Out", "rows [n, width]")
                   .attr("padding_idx", int64_t{-1}, "id whose row is zero; -1: none")
                   .attr("auto_grown_table", true, "unknown ids get a new row")
                   .attr("is_sparse", true, "no effect")
                   .attr("is_distributed", true, "no effect")
                   .infer(infer_lookup)
                   .side_effects());
  registry.add(table_op("lookup_sparse_table_init", "creates the large tables of this process")
                   .attr("large_scale_metas", Strings{}, "one description for each table"));
  registry.add(table_op("lookup_sparse_table_read", "reads columns of a large table")
                   .input("Ids", "ids to read")
                   .output("Out", "one var for each column", Arity::kMany)
                   .attr("init", false, "create rows that do not exist"));
  registry.add(table_op("lookup_sparse_table_write", "writes columns of a large table")
                   .input("Ids", "ids to write")
                   .input("In", "one var for each column", Arity::kMany));
  registry.add(table_op("lookup_sparse_table_merge", "adds rows to a large table")
                   .input("Ids", "ids to change", Arity::kAny)
                   .input("In", "what to add", Arity::kAny)
                   .output("Out", "merged rows", Arity::kAny));
  registry.add(table_op("lookup_sparse_table_grad_split", "ids and values of a gradient")
                   .input("Grad", "gradient by rows")
                   .output("Row", "ids")
                   .output("Value", "values"));
  registry.add(table_op("lookup_sparse_table_fuse_sgd", "sgd step on a large table")
                   .input("Grad", "gradient by rows")
                   .input("LearningRate", "one element"));
  registry.add(table_op("lookup_sparse_table_fuse_adam", "adam step on a large table")
                   .input("Grad", "gradient by rows")
                   .input("LearningRate", "one element")
                   .input("Beta1Pow", "power of beta1")
                   .input("Beta2Pow", "power of beta2")
                   .output("Beta1PowOut", "power after the step")
                   .output("Beta2PowOut", "power after the step")
                   .attr("beta1", 0.9F, "decay of the first moment")
                   .range(0, 1)
                   .attr("beta2", 0.999F, "decay of the second moment")
                   .range(0, 1)
                   .attr("epsilon", 1e-8F, "added to the root")
                   .range(0)
                   .infer(infer_powers));
}

}  // namespace

void add_distributed_sparse_table(OpRegistry& registry) {
  add_local_tables(registry);
  registry.add(OpDef("distributed_lookup_table")
                   .doc("embedding whose table lives on the servers")
                   .input("Ids", "ids of each lookup", Arity::kMany)
                   .input("W", "the table; only its shape is used", Arity::kOne, kAnyKind)
                   .output("Outputs", "rows of each lookup", Arity::kMany)
                   .attr("table_id", 0, "number of the typed table")
                   .attr("is_distributed", false, "the table grows")
                   .attr("lookup_table_version", "lookup_table", "type of the op that it replaces")
                   .one_of({"lookup_table", "lookup_table_v2"})
                   .attr("padding_idx", int64_t{-1}, "id whose row is zero; -1: none")
                   .attr("dtype", 5, "element type, VarType number")
                   .attr("table_names", Strings{}, "slice of the table on each server")
                   .attr("height_sections", Longs{}, "rows of each slice")
                   .range(0)
                   .attr("endpoints", Strings{}, "server of each slice, host:port")
                   .attr("trainer_id", 0, "id of this trainer")
                   .range(0)
                   .infer(infer_remote_lookup)
                   .side_effects()
                   .capability(Capability::kNetwork));
  registry.add(OpDef("distributed_push_sparse")
                   .doc("sends gradients of embeddings to a typed table")
                   .input("Ids", "ids of each lookup", Arity::kMany)
                   .input("Shows", "how often each instance was shown", Arity::kMany)
                   .input("Clicks", "how often each instance was clicked", Arity::kMany)
                   .input("Grads", "gradients, where they are not in Outputs; or one for all Ids",
                          Arity::kAny)
                   .output("Outputs", "gradients of the embeddings; read, not written", Arity::kAny)
                   .attr("table_id", 0, "number of the typed table")
                   .attr("size", 8, "width of a row")
                   .range(1)
                   .attr("is_distributed", false, "the table grows")
                   .attr("push_sparse_version", "push_sparse", "type of the op that it replaces")
                   .one_of({"push_sparse", "push_sparse_v2"})
                   .attr("padding_idx", int64_t{-1}, "id that is not sent; -1: none")
                   .attr("dtype", 5, "element type, VarType number")
                   .attr("use_cvm_op", false, "gradients start with show and click")
                   .attr("slots", std::vector<int32_t>{}, "slot number of each lookup")
                   .side_effects()
                   .capability(Capability::kNetwork));
  registry.add(OpDef("sparse_tensor_load")
                   .doc("loads the rows r with r mod node_num = node_index of a saved table")
                   .output("Out", "the rows", Arity::kOne, kAnyKind)
                   .required_attr<std::string>("file_path", "file to read")
                   .attr("node_index", int64_t{0}, "index of this server")
                   .range(0)
                   .attr("node_num", int64_t{1}, "number of servers")
                   .range(1)
                   .attr("shape", Longs{}, "dims of Out")
                   .side_effects()
                   .capability(Capability::kFile));
}

}  // namespace millrace::ops
