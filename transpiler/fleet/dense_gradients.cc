#include "transpiler/fleet/dense_gradients.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "ops/random_numbers.h"
#include "ops/registry.h"
#include "transpiler/distribute/collective_plan.h"
#include "transpiler/distribute/distribution_passes.h"
#include "transpiler/distribute/emit.h"
#include "transpiler/fleet/update_ops.h"
#include "transpiler/needed_ops.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace dense_gradients {
namespace {

constexpr const char* kSum = "c_allreduce_sum";

bool is_update_role(const Op& op) {
  return (role::of(op) & (role::kOptimize | role::kLrSched)) != 0;
}

Op* first_optimizer(Block& block) {
  for (Op& op : block.ops()) {
    if ((role::of(op) & role::kOptimize) != 0) return &op;
  }
  return nullptr;
}

Status check_no_exchange(const ops::OpRegistry& registry, const Block& block) {
  for (const Op& op : block.ops()) {
    const ops::OpDef* const def = registry.find(op.type());
    const bool is_lookup = op.type().startswith("distributed_");
    if (def == nullptr || def->capability() != ops::Capability::kNetwork || is_lookup) continue;
    return Unimplemented(
               "'{}' exchanges values already; dense gradients by all-reduce need the program of "
               "one process",
               op.type().str())
        .at(op.location());
  }
  return Ok();
}

// ---- which ops and vars only the updates of embeddings need

// Ops that move powers of decay rates for an update.
std::vector<Op*> power_updates(Block& block, const Op& update) {
  std::vector<Op*> found;
  for (Op& op : block.ops()) {
    if (is_update_role(op) && is_power_update(op, update)) found.push_back(&op);
  }
  return found;
}

// True if the op computes only temporary values that no op reads.
bool is_idle(const Block& block, const Op& op) {
  return is_update_role(op) && llvm::all_of(op.output_names(), [&](llvm::StringRef name) {
           const Var* const var = block.find_var(name);
           return (var == nullptr || !var->persistable()) && !block.has_readers(name);
         });
}

class RowUpdates {
 public:
  RowUpdates(Block& block, Block& startup, const FleetWorkerOptions& options)
      : block_(block), startup_(startup), options_(options) {}

  void erase_of(const std::string& param) {
    for (Op* const op : block_.readers_of(param)) {
      if (!role::is_optimizer(*op) || op->first_input("Param") != param) continue;
      const std::vector<Op*> powers = power_updates(block_, *op);
      note_state(*op);
      block_.erase(*op);
      for (Op* const power : powers) {
        const std::string name = power->first_input("X").str();
        if (block_.readers_of(name).size() == 1) block_.erase(*power);
      }
    }
  }

  // Ops that computed what the updates have read, and state that no op uses any more.
  void erase_rest() {
    while (!names_.empty()) {
      const std::string name = *names_.begin();
      names_.erase(names_.begin());
      for (Op* const op : block_.writers_of(name)) {
        if (!is_idle(block_, *op)) continue;
        for (const llvm::StringRef input : op->input_names()) names_.insert(input.str());
        block_.erase(*op);
      }
      if (!block_.has_readers(name) && !block_.has_writers(name)) erase_var(name);
    }
  }

 private:
  void note_state(const Op& update) {
    const llvm::ArrayRef<std::string> pair = role::vars(update);
    for (const llvm::StringRef name : update.input_names()) {
      if (name == update.first_input("Param") || name == update.first_input("Grad")) continue;
      if (!llvm::is_contained(pair, name)) names_.insert(name.str());
    }
  }

  void erase_var(const std::string& name) {
    Var* const var = block_.find_var(name);
    if (var == nullptr || name == options_.scheduled_rate || name == options_.computed_rate) return;
    const bool is_state = var->persistable();
    block_.erase(*var);
    if (!is_state) return;
    for (Op* const op : startup_.writers_of(name)) startup_.erase(*op);
    if (Var* const first = startup_.find_var(name)) startup_.erase(*first);
  }

  Block& block_;
  Block& startup_;
  const FleetWorkerOptions& options_;
  std::set<std::string> names_;  ///< that the erased ops have read
};

// ---- which values are equal on all workers

// What an op reads and writes in block 0, its own blocks included.
struct Uses {
  std::set<std::string> reads;
  std::set<std::string> writes;
};

void add_uses(const Op& op, const Block& root, Uses& uses) {
  const bool is_inner = &op.block() != &root;
  const auto add = [&](llvm::StringRef name, std::set<std::string>& to) {
    const bool is_own = is_inner && op.block().find_var(name) != nullptr;
    if (!name.empty() && !is_own && root.find_var(name) != nullptr) to.insert(name.str());
  };
  for (const llvm::StringRef name : op.input_names()) add(name, uses.reads);
  for (const llvm::StringRef name : op.output_names()) add(name, uses.writes);
  for (const int32_t index : owned_blocks(op)) {
    for (const Op& inner : op.program().block(static_cast<size_t>(index)).ops())
      add_uses(inner, root, uses);
  }
}

// What an op brings in that each worker has for itself; null: nothing.
const char* own_source(const ops::OpRegistry& registry, const Op& op) {
  const ops::OpDef* const def = registry.find(op.type());
  if (def != nullptr && ops::draws_random_numbers(*def)) return "a random number";
  const bool reads_outside = def == nullptr || def->capability() == ops::Capability::kFile ||
                             def->capability() == ops::Capability::kHostCode;
  return reads_outside ? "what it reads outside of the program" : nullptr;
}

// Follows values that differ from worker to worker: feeds, gradients of rows, and what is computed
// from them. Ops of a worker's program do not write them first.
class OwnValues {
 public:
  OwnValues(const Block& root, const ops::OpRegistry& registry)
      : root_(root), registry_(registry) {}

  // Values that one step changes may be read in the next one.
  Status check() {
    for (size_t before = SIZE_MAX; before != kept_.size();) {
      before = kept_.size();
      written_.clear();
      for (const Op& op : root_.ops()) MILLRACE_RETURN_IF_ERROR(follow(op));
    }
    return Ok();
  }

 private:
  [[nodiscard]] bool is_persistable(const std::string& name) const {
    return root_.find_var(name)->persistable();
  }

  [[nodiscard]] bool is_own(const std::string& name) const {
    return is_persistable(name) ? kept_.contains(name)
                                : own_.contains(name) || !written_.contains(name);
  }

  Status follow(const Op& op) {
    Uses uses;
    add_uses(op, root_, uses);
    const auto cause =
        std::ranges::find_if(uses.reads, [&](const std::string& name) { return is_own(name); });
    const char* const source = own_source(registry_, op);
    const bool differs = (cause != uses.reads.end() || source != nullptr) && op.type() != kSum;
    for (const std::string& name : uses.writes) {
      const bool is_kept = is_persistable(name);
      if (differs && is_kept && is_update_role(op))
        return refuse(op, name, cause == uses.reads.end() ? source : "'" + *cause + "'");
      if (differs && is_kept) kept_.insert(name);
      if (differs)
        own_.insert(name);
      else
        own_.erase(name);
      written_.insert(name);
    }
    return Ok();
  }

  static Status refuse(const Op& op, const std::string& changed, const std::string& cause) {
    return Unimplemented(
               "'{}' changes '{}' by {}, which differs from worker to worker; workers of a job "
               "with dense_gradients all_reduce update dense parameters only by averaged gradients",
               op.type().str(), changed, cause)
        .with_hint(
            "clipping by a global norm must leave out embeddings, whose gradients stay on the "
            "workers (need_clip false)")
        .at(op.location());
  }

  const Block& root_;
  const ops::OpRegistry& registry_;
  std::set<std::string> written_;  ///< by the ops of this step so far
  std::set<std::string> own_;      ///< temporary values that differ
  std::set<std::string> kept_;     ///< persistable ones: they stay so
};

// Only the servers have rows.
Status check_no_rows_needed(const Block& block, const TablePlan& plan) {
  for (const SparseTablePlan& table : plan.sparse) {
    for (const Op* const op : block.readers_of(table.var.param)) {
      if (op->type() == "distributed_lookup_table") continue;
      return Unimplemented(
                 "'{}' reads the embedding '{}', whose rows are only on servers: it cannot be "
                 "averaged, or regularized beyond what tables do",
                 op->type().str(), table.var.param)
          .at(op->location());
    }
  }
  return Ok();
}

}  // namespace
}  // namespace dense_gradients

Status keep_rows_only(const Program& main, TablePlan& plan) {
  if (plan.sparse.empty())
    return InvalidArgument(
               "dense_gradients is all_reduce, but no embedding of the program is looked up on "
               "servers (remote_prefetch)")
        .with_hint("mode collective of transpile-program trains without servers");
  if (plan.dense.empty() || plan.dense.front().vars.empty())
    return InvalidArgument(
        "dense_gradients is all_reduce, but the program trains no dense parameters");
  for (const DenseTablePlan& table : plan.dense) {
    if (table.is_data_norm)
      return Unimplemented("statistics of data_norm ('{}') with dense_gradients all_reduce",
                           table.vars.front().param);
  }
  for (const std::string& name : embedding_names(main)) {
    if (plan.find_sparse(name) == nullptr)
      return Unimplemented(
          "'{}' is a sparse embedding whose lookups have no remote_prefetch; its gradients are "
          "rows "
          "that dense_gradients all_reduce does not exchange",
          name);
  }
  plan.dense.clear();
  plan.barrier_id = static_cast<int32_t>(plan.sparse.size());
  return Ok();
}

Status average_dense_gradients(Program& main, const TablePlan& plan, int64_t workers) {
  using namespace dense_gradients;
  Block& block = main.root();
  const auto registry = ops::standard_registry();
  MILLRACE_RETURN_IF_ERROR(check_no_exchange(*registry, block));
  CollectivePlan facts;
  facts.ranks = workers;
  for (const SparseTablePlan& table : plan.sparse) facts.tables.insert(table.var.param);
  MILLRACE_RETURN_IF_ERROR(check_updates_are_reduced(main, facts));
  const auto startup = Program::create();  // the pass does not change it
  PassContext context(*registry);
  context.startup = startup.get();
  context.job = &facts;
  MILLRACE_RETURN_IF_ERROR(
      run_distribution("collective-allreduce-gradients", main, context, fast_options()).status());
  Op* const optimizer = first_optimizer(block);
  std::set<std::string> seen;
  for (const Op* const op : block.op_vector()) {
    if (op->type() != kSum) continue;
    const std::string grad = op->first_output("Out").str();
    if (!seen.insert(grad).second)
      return Unimplemented("two backward ops list the gradient '{}'; it can be summed once", grad)
          .at(op->location());
    if (optimizer == nullptr || !op->comes_before(*optimizer))
      return Unimplemented("the gradient '{}' is computed after the first update", grad)
          .at(op->location());
    emit_scale(block, optimizer, grad, grad, 1.0F / static_cast<float>(workers), role::kBackward);
  }
  return Ok();
}

void delete_row_updates(Program& main, Program& startup, const TablePlan& plan,
                        const FleetWorkerOptions& options) {
  dense_gradients::RowUpdates updates(main.root(), startup.root(), options);
  for (const SparseTablePlan& table : plan.sparse) updates.erase_of(table.var.param);
  updates.erase_rest();
}

Status check_equal_updates(const Program& main, const TablePlan& plan) {
  MILLRACE_RETURN_IF_ERROR(dense_gradients::check_no_rows_needed(main.root(), plan));
  return dense_gradients::OwnValues(main.root(), *ops::standard_registry()).check();
}

}  // namespace millrace::transpiler
