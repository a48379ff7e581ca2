#include <algorithm>
#include <set>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "transpiler/distribute/divide_updates.h"
#include "transpiler/distribute/op_builder.h"
#include "transpiler/fleet/dense_gradients.h"
#include "transpiler/fleet/fleet_programs.h"
#include "transpiler/fleet/fuse_tables.h"
#include "transpiler/fleet/row_gradients.h"
#include "transpiler/fleet/update_ops.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace fleet_worker {
namespace {

// The startup program keeps the rate under this name, whichever op uses it.
constexpr const char* kRate = "learning_rate_0";
// Not connected to: the communicator knows the servers' endpoints.
constexpr const char* kNoEndpoint = "127.0.0.1:6164";

std::vector<Op*> optimizer_ops(Block& block) {
  std::vector<Op*> ops;
  for (Op& op : block.ops()) {
    if (role::is_optimize_op(op)) ops.push_back(&op);
  }
  return ops;
}

// The inputs that are neither parameters nor gradients: rates and optimizer state.
std::set<std::string> state_of(const std::vector<Op*>& ops) {
  std::set<std::string> kept;
  for (const Op* const op : ops) {
    for (const std::string& name : role::vars(*op)) kept.insert(name);
    kept.insert(op->first_input("Grad").str());  // op_role_var may name a later form of it
  }
  std::set<std::string> state;
  for (const Op* const op : ops) {
    for (const llvm::StringRef name : op->input_names())
      if (kept.count(name.str()) == 0) state.insert(name.str());
  }
  return state;
}

// Keeps clipping and regularization of dense parameters on the worker, together with everything
// between gradient and update. Errors: such an op needs rows of embeddings, or servers would have
// to keep more than parameters.
Status keep_before_updates(Block& block, const TablePlan& plan) {
  for (const SparseTablePlan& table : plan.sparse) leave_terms_to_servers(block, table.var.param);
  MILLRACE_ASSIGN_OR_RETURN(const OptimizePart part,
                            divide_updates(block, {.decay_on_servers = false}));
  for (Op* const op : part.trainer) {
    for (const llvm::StringRef name : op->input_names()) {
      if (plan.find_sparse(name) == nullptr) continue;
      return Unimplemented(
                 "'{}' changes a gradient of the embedding '{}', whose rows are only on servers: "
                 "an embedding on servers cannot be regularized",
                 op->type().str(), name.str())
          .at(op->location());
    }
    op->set_int("op_role", role::kBackward);
  }
  for (const ServerOp& server : part.server) {
    if (role::is_optimizer(*server.op)) continue;
    if (is_power_update(*server.op, *part.updates.find(server.param)->second.update)) continue;
    return Unimplemented(
               "'{}' does more for the parameter '{}' than its update (such as an average or "
               "additional state); tables on servers do not support that",
               server.op->type().str(), server.param)
        .at(server.op->location());
  }
  return Ok();
}

// Removes updates and schedules, except for the schedule that the worker runs.
void delete_optimizer(Block& block, const FleetWorkerOptions& options) {
  std::vector<Op*> ops = optimizer_ops(block);
  for (Op& op : block.ops()) {
    const bool runs = !options.computed_rate.empty() && role::of(op) == role::kLrSched;
    if (role::is_lr_op(op) && !runs) ops.push_back(&op);
  }
  const std::set<std::string> state = state_of(ops);
  for (Op* const op : ops) block.erase(*op);
  for (const std::string& name : state) {
    Var* const var = block.find_var(name);
    if (var != nullptr && name != options.scheduled_rate && name != options.computed_rate)
      block.erase(*var);
  }
}

void copy_computed_rate(Block& block, const std::string& rate) {
  if (rate.empty()) return;
  VarSpec spec = block.find_var(rate)->spec();
  spec.persistable.reset();
  block.declare(kComputedRate, std::move(spec));
  Op& op = block.append_op("assign");
  op.set_input("X", rate).set_output("Out", kComputedRate);
  finish(op, role::kLrSched);
}

class SendWriter {
 public:
  SendWriter(Block& block, const FleetWorkerOptions& options) : block_(block), options_(options) {}

  void send(const std::string& context, const std::vector<std::string>& vars, int32_t is_sparse,
            int32_t table_id) {
    Op& op = block_.append_op("send");
    op.set_input("X", vars)
        .set_strings("send_varnames", {context})
        .set_int("is_sparse", is_sparse)
        .set_int("table_id", table_id);
    if (options_.mode == FleetMode::kSync || options_.mode == FleetMode::kHalfAsync) {
      controls_.push_back(names_.create(block_));
      op.set_output("Out", controls_.back());
    }
    finish(op, role::kRpc);
  }

  void barrier() {
    Op& op = block_.append_op("send_barrier");
    op.set_input("X", controls_)
        .set_int("trainer_id", options_.worker)
        .set_bool("half_async", true)
        .set_strings("endpoints", {kNoEndpoint});
    finish(op, role::kRpc);
  }

 private:
  Block& block_;
  const FleetWorkerOptions& options_;
  ControlVars names_;
  std::vector<std::string> controls_;
};

void append_sends(Block& block, const TablePlan& plan, const FleetWorkerOptions& options) {
  SendWriter writer(block, options);
  if (options.mode == FleetMode::kGeo) {
    for (const SparseTablePlan& table : plan.sparse)
      writer.send(table.var.grad, {table.var.grad}, table.is_distributed ? 2 : 1, table.table_id);
    return;
  }
  for (const DenseTablePlan& table : plan.dense) {
    std::vector<std::string> grads;
    for (const TrainedVar& var : table.vars) grads.push_back(var.grad);
    writer.send(table.context_name(), grads, 0, table.table_id);
  }
  if (options.mode != FleetMode::kAsync) writer.barrier();
}

// The servers initialize the rows; the worker's var has no value.
Status fake_tables(const Program& main, Block& startup) {
  for (const std::string& name : embedding_names(main)) {
    const llvm::SmallVector<Op*, 4> writers = startup.writers_of(name);
    if (writers.size() != 1) {
      return InvalidProgram(
          "the embedding '{}' has {} initializers in the startup program, "
          "expected one",
          name, writers.size());
    }
    const AttrValue* const shape = writers[0]->find_attr("shape");
    if (shape == nullptr) return attr_error(*writers[0], "shape", AttrKind::kLongs, nullptr);
    Op& op = startup.append_op("fake_init");
    op.set_output("Out", name).set_attr("shape", *shape);
    finish(op, role::kForward);
    startup.erase(*writers[0]);
  }
  return Ok();
}

void delete_state(const std::set<std::string>& state, const std::string& computed_rate,
                  Block& startup) {
  for (const std::string& name : state) {
    if (name == kRate || name == computed_rate) continue;
    for (Op* const op : startup.writers_of(name)) startup.erase(*op);
    if (Var* const var = startup.find_var(name)) startup.erase(*var);
  }
}

// What the servers update is sent to them, and what is left of the optimizer is removed.
Status move_updates(FleetPrograms& programs, const TablePlan& plan,
                    const FleetWorkerOptions& options) {
  Block& block = programs.main->root();
  if (options.averaging_workers > 0) {
    MILLRACE_RETURN_IF_ERROR(
        average_dense_gradients(*programs.main, plan, options.averaging_workers));
    for (const SparseTablePlan& table : plan.sparse) leave_terms_to_servers(block, table.var.param);
    MILLRACE_RETURN_IF_ERROR(fuse_tables(*programs.main, plan, programs.remarks));
    delete_row_updates(*programs.main, *programs.startup, plan, options);
    return check_equal_updates(*programs.main, plan);
  }
  MILLRACE_RETURN_IF_ERROR(keep_before_updates(block, plan));
  const std::set<std::string> state = state_of(optimizer_ops(block));
  MILLRACE_RETURN_IF_ERROR(fuse_tables(*programs.main, plan, programs.remarks));
  delete_optimizer(block, options);
  delete_state(state, options.computed_rate, programs.startup->root());
  return Ok();
}

}  // namespace
}  // namespace fleet_worker

StatusOr<FleetPrograms> make_fleet_worker(const Program& main, const Program& startup,
                                          const TablePlan& plan,
                                          const FleetWorkerOptions& options) {
  using namespace fleet_worker;
  FleetPrograms out;
  out.main = main.clone();
  out.startup = startup.clone();
  Block& block = out.main->root();
  if (options.mode != FleetMode::kGeo) {
    MILLRACE_RETURN_IF_ERROR(move_updates(out, plan, options));
    copy_computed_rate(block, options.computed_rate);
    MILLRACE_RETURN_IF_ERROR(fake_tables(main, out.startup->root()));
  }
  append_sends(block, plan, options);
  if (options.mode != FleetMode::kGeo)
    MILLRACE_RETURN_IF_ERROR(restore_row_gradients(*out.main->clone()));  // errors only
  return out;
}

}  // namespace millrace::transpiler
