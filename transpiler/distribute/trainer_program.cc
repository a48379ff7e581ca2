#include "transpiler/distribute/trainer_program.h"

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "transpiler/needed_ops.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// Vars that only optimize ops read, apart from the param and gradient of their op_role_var.
std::vector<std::string> server_only_vars(const DistributionJob& job) {
  llvm::StringSet<> kept;
  for (const Op* const op : job.optimize_ops) {
    for (const std::string& name : role::vars(*op)) kept.insert(name);
  }
  std::vector<std::string> out;
  llvm::StringSet<> seen;
  for (const Op* const op : job.optimize_ops) {
    for (const llvm::StringRef name : op->input_names()) {
      if (kept.count(name) == 0 && seen.insert(name).second) out.push_back(name.str());
    }
  }
  return out;
}

// The blocks that ops of block 0 own, and those that their ops own, each once.
std::vector<const Block*> owned_below_root(const Program& program) {
  std::vector<const Block*> out;
  if (program.block_count() == 1) return out;
  std::vector<bool> seen(program.block_count(), false);
  std::vector<const Block*> open = {&program.root()};
  while (!open.empty()) {
    const Block* const block = open.back();
    open.pop_back();
    for (const Op& op : block->ops()) {
      for (const int32_t index : owned_blocks(op)) {
        if (seen[static_cast<size_t>(index)]) continue;
        seen[static_cast<size_t>(index)] = true;
        out.push_back(&program.block(index));
        open.push_back(out.back());
      }
    }
  }
  return out;
}

// Scheduler ops whose results an op that stays on the trainer reads (averages of vars that are on
// no server). Errors: the schedule counts the steps of all trainers, which only servers can do.
StatusOr<llvm::DenseSet<const Op*>> schedule_of_trainer(const Block& block,
                                                        const DistributionJob& job) {
  llvm::DenseSet<const Op*> kept;
  llvm::StringSet<> read;
  for (const Op& op : llvm::reverse(block.ops())) {
    const bool goes = role::is_lr_op(op) || role::is_optimize_op(op);
    const auto outputs = op.output_names();
    const bool is_read =
        llvm::any_of(outputs, [&](llvm::StringRef name) { return read.count(name) != 0; });
    if (goes && (!role::is_lr_op(op) || !is_read)) continue;
    if (goes) {
      if (!job.step_counter.empty()) {
        return Unimplemented(
                   "an op of the trainer reads the result of this op of the schedule, but in "
                   "asynchronous training only servers know the common step")
            .at(op.location());
      }
      kept.insert(&op);
    }
    for (const llvm::StringRef name : op.input_names()) read.insert(name);
  }
  return kept;
}

// Removes from the list the vars that an op still uses: not only servers need them.
void keep_used(const Program& program, std::vector<std::string>& vars) {
  std::vector<const Block*> blocks = owned_below_root(program);
  blocks.push_back(&program.root());
  llvm::erase_if(vars, [&](const std::string& name) {
    return llvm::any_of(blocks, [&](const Block* block) {
      return block->has_readers(name) || block->has_writers(name);
    });
  });
}

void remove_initializers(Block& startup, const std::vector<std::string>& vars) {
  for (const std::string& name : vars) {
    for (Op* const op : startup.writers_of(name)) startup.erase(*op);
  }
  for (const std::string& name : vars) {
    if (Var* const var = startup.find_var(name)) startup.erase(*var);
  }
}

// The servers initialize a sparse table; the trainer only declares its shape.
Status fake_initialize(Block& startup, const std::string& table) {
  const llvm::SmallVector<Op*, 4> initializers = startup.writers_of(table);
  if (initializers.size() != 1) {
    return InvalidProgram(
        "sparse table '{}' needs exactly one initializer in the startup program (found {})", table,
        initializers.size());
  }
  const AttrValue* const shape = initializers[0]->find_attr("shape");
  if (shape == nullptr) {
    return InvalidProgram("the initializer of sparse table '{}' has no attribute 'shape'", table)
        .at(initializers[0]->location());
  }
  Op& fake = startup.append_op("fake_init");
  fake.set_output("Out", llvm::StringRef(table)).set_attr("shape", *shape);
  finish(fake, role::kForward);
  startup.erase(*initializers[0]);
  return Ok();
}

}  // namespace

StatusOr<RolePrograms> make_trainer_programs(RolePrograms rewritten, const DistributionJob& job) {
  RolePrograms out = std::move(rewritten);
  // The job's ops may be among the ops that are erased.
  std::vector<std::string> vars = server_only_vars(job);
  Block& block = out.main->root();
  MILLRACE_ASSIGN_OR_RETURN(const llvm::DenseSet<const Op*> schedule,
                            schedule_of_trainer(block, job));
  for (Op& op : llvm::make_early_inc_range(block.ops())) {
    const bool goes = role::is_lr_op(op) || role::is_optimize_op(op);
    if (goes && !schedule.contains(&op)) block.erase(op);
  }
  keep_used(*out.main, vars);
  for (const std::string& name : vars) {
    if (Var* const var = block.find_var(name)) block.erase(*var);
  }
  Block& startup_block = out.startup->root();
  remove_initializers(startup_block, vars);
  for (const std::string& table : job.sparse_tables) {
    Status status = fake_initialize(startup_block, table);
    if (!status.ok()) return status;
  }
  return out;
}

}  // namespace millrace::transpiler
