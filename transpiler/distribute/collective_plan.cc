#include "transpiler/distribute/collective_plan.h"

#include <algorithm>

#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/op_attrs.h"
#include "transpiler/distribute/endpoints.h"
#include "transpiler/distribute/op_builder.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

constexpr const char* kMultiThread = "single_process_multi_thread";

std::set<std::string> distributed_tables(const Program& main) {
  std::set<std::string> tables;
  for (const Op& op : main.root().ops()) {
    if (!get_attr_or<bool>(op, "is_distributed", false)) continue;
    if (const llvm::StringRef table = op.first_input("W"); !table.empty())
      tables.insert(table.str());
  }
  return tables;
}

// Files written before 2.0 do not mark parameters; there the op_role_var lists of main name them.
bool marks_parameters(const Program& startup) {
  const auto vars = startup.root().vars();
  return std::any_of(vars.begin(), vars.end(), [](const Var& var) { return var.is_parameter(); });
}

std::vector<std::string> startup_parameters(const Program& main, const Program& startup,
                                            const std::vector<std::string>& order) {
  std::set<std::string> known;
  if (marks_parameters(startup)) {
    for (const Var& var : startup.root().vars()) {
      if (var.is_parameter()) known.insert(var.name().str());
    }
  } else {
    for (const Op& op : main.root().ops()) {
      const llvm::ArrayRef<std::string> pairs = role::vars(op);
      for (size_t i = 0; i + 1 < pairs.size(); i += 2) known.insert(pairs[i]);
    }
  }
  std::vector<std::string> out;
  auto take = [&](const std::string& name) {
    if (startup.root().find_var(name) != nullptr && known.erase(name) != 0) out.push_back(name);
  };
  for (const std::string& name : order) take(name);
  for (const Var& var : startup.root().vars()) take(var.name().str());
  return out;
}

int64_t host_count(const std::vector<std::string>& endpoints) {
  std::set<std::string> hosts;
  for (const std::string& endpoint : endpoints)
    hosts.insert(endpoint.substr(0, endpoint.find(':')));
  return static_cast<int64_t>(hosts.size());
}

}  // namespace

StatusOr<CollectivePlan> plan_collective(const Program& main, const Program& startup,
                                         const DistributeTranspilerConfig& config,
                                         const TranspileArguments& arguments) {
  const std::string& mode = config.collective_mode;
  if (mode != "grad_allreduce" && mode != "local_sgd" && mode != kMultiThread) {
    return InvalidArgument(
        "collective_mode {} is unknown, expected grad_allreduce, local_sgd or {}", in_quotes(mode),
        kMultiThread);
  }
  CollectivePlan plan;
  MILLRACE_ASSIGN_OR_RETURN(plan.endpoints, split_endpoints(arguments.trainers, "trainers"));
  if (plan.endpoints.size() == 1 && mode != kMultiThread) {
    return InvalidArgument("collective_mode {} needs at least 2 endpoints in 'trainers', found 1",
                           mode);
  }
  if (arguments.trainer_id < 0) {
    return InvalidArgument("trainer_id is {}, expected 0 or more", arguments.trainer_id);
  }
  if (config.nccl_comm_num < 1) {
    return InvalidArgument("nccl_comm_num is {}, expected 1 or more", config.nccl_comm_num);
  }
  if (config.fuse_allreduce < 0 || config.fuse_allreduce > 2) {
    return InvalidArgument("fuse_allreduce is {}, expected 0, 1 or 2", config.fuse_allreduce);
  }
  MILLRACE_ASSIGN_OR_RETURN(plan.others, other_endpoints(plan.endpoints, arguments.current_endpoint,
                                                         arguments.trainer_id));
  const bool threads = mode == kMultiThread;
  plan.many_devices = threads;
  plan.rank = arguments.trainer_id;
  plan.rings = threads ? 1 : config.nccl_comm_num;
  plan.current_endpoint = arguments.current_endpoint;
  plan.device_count = std::max<int64_t>(arguments.device_count, 0);
  for (const std::string& name : arguments.parameter_order) {
    if (main.root().find_var(name) == nullptr && startup.root().find_var(name) == nullptr)
      return InvalidArgument("parameter_order: the program declares no var '{}' in block 0", name);
  }
  plan.parameters = startup_parameters(main, startup, arguments.parameter_order);
  plan.tables = distributed_tables(main);
  plan.fuse_allreduce = config.fuse_allreduce;
  plan.ranks = threads ? host_count(plan.endpoints) : static_cast<int64_t>(plan.endpoints.size());
  return plan;
}

bool is_backward_op(const Op& op) {
  return (role::of(op) & role::kBackward) != 0;
}

bool is_loss_grad_op(const Op& op) {
  return is_backward_op(op) && (role::of(op) & role::kLoss) != 0;
}

bool is_update_op(const Op& op) {
  return role::is_optimizer(op) && op.find_input("Grad") != nullptr;
}

StatusOr<std::vector<GradPair>> backward_pairs(const Op& op) {
  std::vector<GradPair> out;
  if (!is_backward_op(op)) return out;
  const llvm::ArrayRef<std::string> names = role::vars(op);
  if (names.size() % 2 != 0) {
    return InvalidProgram("op_role_var has {} names, expected pairs of parameter and gradient",
                          names.size())
        .at(op.location());
  }
  for (const std::string& name : names) {
    if (op.block().find_var(name) == nullptr) {
      return InvalidProgram("op_role_var names {}, which the block does not declare",
                            in_quotes(name))
          .at(op.location());
    }
  }
  for (size_t i = 0; i < names.size(); i += 2) out.push_back({names[i], names[i + 1]});
  return out;
}

StatusOr<std::vector<PairsOfOp>> pairs_from_last(Block& block) {
  std::vector<PairsOfOp> all;
  const std::vector<Op*> ops = block.op_vector();
  for (Op* const op : llvm::reverse(ops)) {
    MILLRACE_ASSIGN_OR_RETURN(std::vector<GradPair> pairs, backward_pairs(*op));
    if (!pairs.empty()) all.push_back({op, std::move(pairs)});
  }
  return all;
}

Status check_updates_are_reduced(const Program& main, const CollectivePlan& plan) {
  std::set<std::string> stated;
  for (const Op& op : main.root().ops()) {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<GradPair> pairs, backward_pairs(op));
    for (const GradPair& pair : pairs) stated.insert(pair.param);
  }
  for (const Op& op : main.root().ops()) {
    if (!is_update_op(op)) continue;
    const std::string param = op.first_input("Param").str();
    if (stated.count(param) != 0 || plan.is_table(param)) continue;
    return InvalidProgram(
               "the op updates {}, but no backward op lists its gradient in op_role_var, so "
               "it would not be reduced",
               in_quotes(param))
        .at(op.location());
  }
  return Ok();
}

Op& insert_in_place(Block& block, Op* where, llvm::StringRef type, llvm::StringRef var,
                    int32_t role) {
  Op& op = block.insert_before(where, type);
  op.set_input("X", var).set_output("Out", var);
  return finish(op, role);
}

Op& insert_on_ring(Block& block, Op* where, llvm::StringRef type, llvm::StringRef var, int64_t ring,
                   int32_t role) {
  return insert_in_place(block, where, type, var, role)
      .set_int("ring_id", static_cast<int32_t>(ring));
}

}  // namespace millrace::transpiler
