#include "framework/base/errors.h"
#include "framework/names.h"
#include "framework/row_owner.h"
#include "transpiler/distribute/emit.h"
#include "transpiler/distribute/pserver_builder.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

const Op* table_update(const DistributionJob& job, uint32_t pair) {
  for (const Op* const op : job.ops_of_pair[pair]) {
    if (role::is_optimizer(*op)) return op;
  }
  return nullptr;
}

// The server's share of the table: rows by id, held as SELECTED_ROWS.
void declare_table(PserverBuilder& b, const Var& whole) {
  Dims dims(whole.dims().begin(), whole.dims().end());
  const auto servers = static_cast<int64_t>(b.job.endpoints.size());
  if (!dims.empty()) dims[0] = rows_of_server(dims[0], 0, servers);
  VarSpec spec = plain_spec(VarKind::kSelectedRows, whole.dtype(), dims);
  spec.persistable = true;
  b.root().declare(whole.name(), std::move(spec));
}

// The gradient that the update reads: merged in sync mode, else that of one trainer.
std::string declare_grad(PserverBuilder& b, Block& block, const Var& grad) {
  const auto server = static_cast<int64_t>(b.server);
  VarSpec spec = grad.spec();
  spec.persistable = true;
  spec.is_parameter.reset();
  if (!b.job.sync()) {
    std::string name = b.job.table.grad_vars[b.server];
    b.root().declare(name, std::move(spec));
    return name;
  }
  b.root().declare(grad.name(), std::move(spec));
  std::vector<std::string> parts;
  for (int64_t trainer = 0; trainer < b.job.trainers; ++trainer) {
    parts.push_back(names::pserver(names::trainer(b.job.table.grad, trainer), server));
    b.root().declare(parts.back(), plain_spec(grad.kind(), grad.dtype(), grad.dims()));
  }
  emit_sum(block, nullptr, parts, grad.name(), role::kForward);
  return grad.name().str();
}

void append_prefetch_block(PserverBuilder& b, int32_t parent) {
  const DistributedTable& table = b.job.table;
  Block& block = b.program->add_block(parent);
  b.root().declare(table.ids_vars[b.server], table.ids_spec);
  b.root().declare(table.out_vars[b.server], table.out_spec);
  Op& lookup = block.append_op("lookup_sparse_table");
  lookup.set_input("Ids", llvm::StringRef(table.ids_vars[b.server]))
      .set_input("W", llvm::StringRef(table.param))
      .set_output("Out", llvm::StringRef(table.out_vars[b.server]))
      .set_bool("is_sparse", true)
      .set_bool("is_distributed", true)
      .set_attr("padding_idx", AttrValue::of_long(table.padding_idx));
  finish(lookup, role::kForward);
  b.prefetch_to_block_id.push_back(table.ids_vars[b.server] + ":" + std::to_string(block.index()));
}

void append_checkpoint_block(PserverBuilder& b, int32_t parent) {
  VarSpec path = VarSpec::shapeless(VarKind::kRaw);
  path.persistable = true;
  b.root().declare("kLookupTablePath", std::move(path));
  Block& block = b.program->add_block(parent);
  Op& save = block.append_op("save");
  save.set_input("X", llvm::StringRef(b.job.table.param))
      .set_string("file_path", "none")
      .set_bool("overwrite", true);
  finish(save, role::kForward);
  b.checkpoint_block = block.index();
}

}  // namespace

Status build_table_blocks(PserverBuilder& b, int32_t parent) {
  const DistributedTable& table = b.job.table;
  const Op* const update = table_update(b.job, b.job.pair_of_param.lookup(table.param));
  if (update == nullptr)
    return InvalidProgram("distributed table '{}' is updated by no optimizer op", table.param);
  Block& block = b.program->add_block(parent);
  declare_table(b, *b.origin.root().find_var(table.param));
  const std::string grad = declare_grad(b, block, *b.origin.root().find_var(table.grad));
  const llvm::StringRef rate = update->first_input("LearningRate");
  MILLRACE_RETURN_IF_ERROR(b.clone_var(rate, *update));
  // Rows of a distributed table are updated by sgd, whatever the program's optimizer is.
  Op& sgd = block.append_op("sgd");
  sgd.set_input("Param", llvm::StringRef(table.param))
      .set_input("Grad", llvm::StringRef(grad))
      .set_input("LearningRate", rate)
      .set_output("ParamOut", llvm::StringRef(table.param));
  finish(sgd, role::kForward);
  b.grad_to_block_id.push_back(grad + ":" + std::to_string(block.index()));
  b.optimize_blocks.push_back(block.index());
  append_prefetch_block(b, block.index());
  append_checkpoint_block(b, block.index());
  return Ok();
}

}  // namespace millrace::transpiler
