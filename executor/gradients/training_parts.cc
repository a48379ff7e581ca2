#include "executor/gradients/training_parts.h"

#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "framework/op_attrs.h"
#include "ops/backward/array_reads.h"

namespace millrace::executor {
namespace {

constexpr int32_t kBackwardRole = 1;
constexpr int32_t kUpdateRoles = 2 | 16;  // Optimize, LRSched
constexpr int32_t kJobRoles = 4 | 8;      // RPC, Dist
constexpr int32_t kNoRole = 4096;         // the role of error clips
constexpr int32_t kSeedRole = 257;        // Backward|Loss

int32_t role_of(const Op& op) {
  return get_attr_or<int32_t>(op, "op_role", 0);
}

bool has_roles(const Program& program) {
  return llvm::any_of(program.root().ops(), [](const Op& op) { return role_of(op) != 0; });
}

bool is_update(const Op& op) {
  if (role_of(op) != kNoRole && (role_of(op) & kUpdateRoles) != 0) return true;
  return op.find_input("Param") != nullptr && op.find_output("ParamOut") != nullptr;
}

bool is_error_clip(const Op& op) {
  const llvm::StringRef out = op.first_output("Out");
  return op.type() == "clip" && role_of(op) == kNoRole && out.contains("@GRAD") &&
         op.first_input("X") == out;
}

bool is_seed(const Op& op, bool roles) {
  if (op.type() != "fill_constant" || !op.first_output("Out").endswith("@GRAD")) return false;
  return !roles || role_of(op) == kSeedRole;
}

template <typename Names>
bool has_one(const Names& names, const std::set<std::string>& wanted) {
  return llvm::any_of(names, [&](llvm::StringRef name) { return wanted.contains(name.str()); });
}

// The ops of block 0 that write one of the names or something that they depend on; adds those names
// to `names`.
std::set<const Op*> ops_computing(const Program& program, std::set<std::string>& names) {
  std::set<const Op*> ops;
  bool grows = true;
  while (grows) {  // normally once; again if an earlier op reads what a later one writes
    grows = false;
    std::vector<const Op*> order;
    for (const Op& op : program.root().ops()) order.push_back(&op);
    for (const Op* const op : llvm::reverse(order)) {
      if (ops.contains(op) || !has_one(op->output_names(), names)) continue;
      ops.insert(op);
      grows = true;
      for (const llvm::StringRef name : op->input_names())
        if (name != names::kEmpty) names.insert(name.str());
      names.merge(ops::backward::arrays_read_unlisted(*op));
    }
  }
  return ops;
}

}  // namespace

bool is_gradient_op(const Op& op) {
  if (role_of(op) != kNoRole && (role_of(op) & kBackwardRole) != 0) return true;
  return llvm::any_of(op.output_names(),
                      [](llvm::StringRef name) { return name.contains("@GRAD"); });
}

StatusOr<std::map<std::string, double>> seeded_losses(const Program& program) {
  const bool roles = has_roles(program);
  std::map<std::string, double> losses;
  for (const Op& op : program.root().ops()) {
    if (!is_seed(op, roles)) continue;
    llvm::StringRef loss = op.first_output("Out").drop_back(llvm::StringRef("@GRAD").size());
    while (loss.consume_front("grad/")) {
    }
    if (program.root().find_var(loss) == nullptr) {
      if (!roles) continue;  // some other constant
      return InvalidProgram("this op sets the initial gradient of '{}', which is not declared",
                            loss.str())
          .at(op.location());
    }
    losses[loss.str()] = get_attr_or<float>(op, "value", 1.0F);
  }
  return losses;
}

StatusOr<std::vector<std::string>> remove_updates(Program& program) {
  std::vector<std::string> notes;
  for (Block& block : program.blocks()) {
    for (Op* const op : block.op_vector()) {
      if (role_of(*op) != kNoRole && (role_of(*op) & kJobRoles) != 0) {
        return Unimplemented(
                   "the program is part of a job with servers or several processes; "
                   "check the gradients of the program that it was made from")
            .at(op->location());
      }
      if (is_error_clip(*op)) {
        notes.push_back("without the error clip of '" + op->first_output("Out").str() + "'");
        block.erase(*op);
      } else if (block.index() == 0 && is_update(*op)) {
        block.erase(*op);
      }
    }
  }
  return notes;
}

std::map<std::string, std::set<std::string>> gradients_of_params(const Program& program) {
  std::map<std::string, std::set<std::string>> grads;
  for (const Op& op : program.root().ops()) {
    if ((role_of(op) & kBackwardRole) == 0) continue;
    const auto pairs = get_attr_or<std::vector<std::string>>(op, "op_role_var", {});
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) grads[pairs[i]].insert(pairs[i + 1]);
  }
  for (const Var& var : program.root().vars()) {
    const std::string grad = names::grad(var.name());
    if (var.is_parameter() && program.root().has_writers(grad) && !grads.contains(var.name().str()))
      grads[var.name().str()] = {grad};
  }
  return grads;
}

std::set<std::string> sources_of(const Program& program, const std::set<std::string>& names) {
  std::set<std::string> sources = names;
  ops_computing(program, sources);
  return sources;
}

std::set<std::string> results_of(const Program& program, const std::set<std::string>& names) {
  std::set<std::string> results = names;
  for (bool grows = true; grows;) {
    const size_t before = results.size();
    for (const Op& op : program.root().ops()) {
      if (!has_one(op.input_names(), results) &&
          !has_one(ops::backward::arrays_read_unlisted(op), results))
        continue;
      for (const llvm::StringRef name : op.output_names())
        if (name != names::kEmpty) results.insert(name.str());
    }
    grows = results.size() != before;
  }
  return results;
}

void keep_only_sources(Program& program, const std::set<std::string>& names) {
  std::set<std::string> sources = names;
  const std::set<const Op*> kept = ops_computing(program, sources);
  for (Op* const op : program.root().op_vector())
    if (!kept.contains(op)) program.root().erase(*op);
}

}  // namespace millrace::executor
