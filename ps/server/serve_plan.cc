#include "ps/server/serve_plan.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringExtras.h>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "framework/op_attrs.h"
#include "framework/program.h"

namespace millrace::ps {
namespace {

using Strings = std::vector<std::string>;

Status check_block(const Op& op, int64_t index, const std::string& attr) {
  const auto count = static_cast<int64_t>(op.program().block_count());
  if (index > 0 && index < count) return Ok();
  return InvalidProgram("attribute '{}' names block {}, expected one of [1, {})", attr, index,
                        count);
}

// Entries "name:block".
StatusOr<std::map<std::string, int32_t>> read_block_map(const Op& op, const std::string& attr) {
  std::map<std::string, int32_t> map;
  for (const std::string& entry : get_attr_or(op, attr, Strings{})) {
    const auto [name, number] = llvm::StringRef(entry).rsplit(':');
    int32_t block = -1;
    if (name.empty() || number.getAsInteger(10, block))
      return InvalidProgram("attribute '{}' has the entry '{}', expected name:block", attr, entry);
    MILLRACE_RETURN_IF_ERROR(check_block(op, block, attr));
    map[name.str()] = block;
  }
  return map;
}

// A geo server without parameters has no optimize blocks; in other modes it has an empty block.
StatusOr<std::vector<int32_t>> optimize_blocks(const Op& op, ServerMode mode) {
  std::vector<int32_t> blocks;
  const AttrValue* const attr = op.find_attr("optimize_blocks");
  if (attr != nullptr && attr->kind() == AttrKind::kBlocks)
    blocks.assign(attr->ints().begin(), attr->ints().end());
  if (attr != nullptr && attr->kind() == AttrKind::kBlock)
    blocks.push_back(static_cast<int32_t>(attr->integer()));
  if (blocks.empty() && mode != ServerMode::kGeo)
    return InvalidProgram("the server has no optimize block");
  for (const int32_t block : blocks)
    MILLRACE_RETURN_IF_ERROR(check_block(op, block, "optimize_blocks"));
  return blocks;
}

// Consecutive blocks with the same parent run in parallel; the learning rate block runs before
// them.
void group_blocks(const Op& op, const std::vector<int32_t>& blocks, ServePlan& plan) {
  int32_t last = -1;
  for (const int32_t block : blocks) {
    const int32_t parent = op.program().block(static_cast<size_t>(block)).parent();
    const bool joins = last >= 0 && block != plan.lr_block && last != plan.lr_block &&
                       op.program().block(static_cast<size_t>(last)).parent() == parent;
    if (!joins) plan.groups.emplace_back();
    plan.groups.back().push_back(block);
    last = block;
  }
}

// Programs older than distributed_mode have only sync_mode.
Status read_mode(const Op& op, ServePlan& plan) {
  const bool is_sync = get_attr_or(op, "sync_mode", false);
  plan.federated = op.type() == "fl_listen_and_serv";
  const bool is_old = op.has_attr("sync_mode") && !op.has_attr("distributed_mode");
  if (plan.federated || is_old) {
    plan.mode = is_sync ? ServerMode::kSync : ServerMode::kAsync;
    return Ok();
  }
  const int32_t mode = get_attr_or(op, "distributed_mode", 0);
  if (op.has_attr("sync_mode") && is_sync != (mode == 0)) {
    return InvalidProgram(
        "attributes 'sync_mode' {} and 'distributed_mode' {} contradict each other", is_sync, mode);
  }
  switch (mode) {
    case 0:
      plan.mode = ServerMode::kSync;
      return Ok();
    case 1:
    case 2:
      plan.mode = ServerMode::kAsync;
      return Ok();
    case 3:
      plan.mode = ServerMode::kGeo;
      return Ok();
    default:
      return InvalidProgram("attribute 'distributed_mode' is {}, expected 0 to 3", mode);
  }
}

// How the program merges the gradients of several trainers. The original names a server synchronous
// by the configuration, but makes vars for the gradients of each trainer by the argument of
// transpile().
struct Merging {
  std::string merged;  // a gradient with a var for each trainer
  std::string single;  // one with a var for all
};

Merging merging(const ServePlan& plan) {
  Merging found;
  for (const auto& [grad, block] : plan.grad_blocks) {
    const auto [table, server] = llvm::StringRef(grad).rsplit(".pserver_");
    const bool is_part_of_table = !server.empty() && llvm::all_of(server, llvm::isDigit);
    const bool is_single = plan.trainers > 1 && llvm::is_contained(plan.inputs, grad);
    const bool is_merged = llvm::is_contained(plan.inputs, names::trainer(grad, 0));
    if (is_merged) {
      found.merged = grad;
    } else if (is_part_of_table || is_single) {
      found.single = grad;
    }
  }
  return found;
}

// Servers that merge nothing apply each gradient when it arrives: in steps, each would replace that
// of another trainer. Errors: kUnimplemented if only some gradients are merged.
Status leave_steps_without_merging(ServePlan& plan) {
  const Merging found = merging(plan);
  if (found.single.empty()) return Ok();
  if (!found.merged.empty())
    return Unimplemented(
               "this server merges the gradients of {} trainers for '{}', but has a single var "
               "for '{}': of its rows, it would keep those of one trainer",
               plan.trainers, found.merged, found.single)
        .with_hint("transpile with sync_mode true, or without completely_not_async");
  plan.mode = ServerMode::kAsync;
  return Ok();
}

}  // namespace

StatusOr<ServePlan> ServePlan::read(const Op& op) {
  ServePlan plan;
  MILLRACE_RETURN_IF_ERROR(read_mode(op, plan));
  plan.dc_asgd = get_attr_or(op, "dc_asgd", false);
  plan.trainers = get_attr_or(op, op.type() == "heter_listen_and_serv" ? "fanin" : "Fanin", 1);
  if (plan.trainers < 1)
    return InvalidProgram("attribute 'Fanin' is {}, expected 1 or more", plan.trainers);
  plan.server = std::max(get_attr_or(op, "pserver_id", 0), 0);
  plan.endpoint = get_attr_or(op, "endpoint", std::string());
  for (const llvm::StringRef name : op.input("X")) plan.inputs.push_back(name.str());
  plan.lr_block = get_attr_or(op, "lr_decay_block_id", -1);
  plan.checkpoint_block = get_attr_or(op, "checkpint_block_id", -1);
  if (plan.lr_block >= 0)
    MILLRACE_RETURN_IF_ERROR(check_block(op, plan.lr_block, "lr_decay_block_id"));
  if (plan.checkpoint_block >= 0)
    MILLRACE_RETURN_IF_ERROR(check_block(op, plan.checkpoint_block, "checkpint_block_id"));
  MILLRACE_ASSIGN_OR_RETURN(plan.message_blocks, read_block_map(op, "message_to_block_id"));
  MILLRACE_ASSIGN_OR_RETURN(plan.grad_blocks, read_block_map(op, "grad_to_block_id"));
  if (plan.mode == ServerMode::kSync && !plan.federated)
    MILLRACE_RETURN_IF_ERROR(leave_steps_without_merging(plan));
  if (op.type() != "heter_listen_and_serv") {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<int32_t> blocks, optimize_blocks(op, plan.mode));
    group_blocks(op, blocks, plan);
  }
  MILLRACE_ASSIGN_OR_RETURN(plan.prefetch_blocks,
                            read_block_map(op, "prefetch_var_name_to_block_id"));
  for (const std::string& entry : get_attr_or(op, "sparse_grad_to_param", Strings{})) {
    const auto [grad, param] = llvm::StringRef(entry).rsplit(':');
    plan.sparse_params[grad.str()] = param.str();
  }
  return plan;
}

}  // namespace millrace::ps
