#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "transpiler/distribute/pserver_passes.h"

namespace millrace::transpiler {
namespace find_tables_parts {
namespace {

std::string_view view(llvm::StringRef s) {
  return {s.data(), s.size()};
}

bool flag(const Op& op, llvm::StringRef name) {
  return get_attr_or<bool>(op, name, false);
}

// The weight of a lookup: slot W, except that nce calls it Weight.
llvm::StringRef table_of(const Op& op) {
  return op.type() == "nce" ? op.first_input("Weight") : op.first_input("W");
}

// The one table whose lookups are all marked is_distributed.
Status find_distributed_table(const Block& block, DistributionJob& job) {
  std::string& table = job.table.param;
  for (const Op& op : block.ops()) {
    if (op.type() != "lookup_table" || !flag(op, "is_distributed")) continue;
    const llvm::StringRef name = op.first_input("W");
    if (!table.empty() && table != name) {
      return InvalidProgram(
                 "is_distributed is set on lookups of '{}' and of '{}'; only one table may be "
                 "distributed",
                 table, view(name))
          .at(op.location());
    }
    table = name.str();
  }
  if (table.empty()) return Ok();
  for (const Op& op : block.ops()) {
    if (op.type() == "lookup_table" && op.first_input("W") == table &&
        !flag(op, "is_distributed")) {
      return InvalidProgram(
                 "table '{}' is distributed, but this lookup of it does not set is_distributed",
                 table)
          .at(op.location());
    }
  }
  const auto pair = job.pair_of_param.find(table);
  if (pair == job.pair_of_param.end()) {
    return InvalidProgram("distributed table '{}' is updated by no optimizer op", table);
  }
  const ParamGrad& update = job.pairs[pair->second];
  if (update.grad_kind != VarKind::kSelectedRows) {
    return InvalidProgram(
        "the gradient '{}' of the distributed table '{}' is dense; all its lookups need is_sparse",
        update.grad, table);
  }
  if (update.has_server_ops) {
    return Unimplemented(
        "the distributed table '{}' is regularized; servers update its rows by sgd with the "
        "unchanged gradient",
        table);
  }
  if (job.config.enable_dc_asgd)
    return Unimplemented(
        "enable_dc_asgd: the distributed table '{}' does not support delay compensation", table);
  job.table.grad = update.grad;
  return Ok();
}

}  // namespace
}  // namespace find_tables_parts

Status find_tables(Program& main, PassContext& context, DistributionJob& job) {
  using namespace find_tables_parts;
  (void)context;
  const Block& block = main.root();
  MILLRACE_RETURN_IF_ERROR(find_distributed_table(block, job));
  for (Op& op : main.root().ops()) {
    const llvm::StringRef type = op.type();
    const bool is_lookup = type == "lookup_table" || type == "lookup_table_v2" || type == "nce" ||
                           type == "hierarchical_sigmoid";
    // The rules for a distributed table take precedence over remote_prefetch.
    const bool distributed = job.table.exists() && table_of(op) == job.table.param;
    if (is_lookup && !distributed && flag(op, "remote_prefetch"))
      job.prefetch_lookups.push_back(&op);
    const bool is_sparse_update = type == "lookup_table" || type == "nce";
    if ((is_sparse_update && flag(op, "is_sparse")) || type == "distributed_lookup_table") {
      job.sparse_tables.insert(table_of(op).str());
    }
  }
  if (job.table.exists()) job.sparse_tables.insert(job.table.param);
  return Ok();
}

}  // namespace millrace::transpiler
