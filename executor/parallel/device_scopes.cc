#include "executor/parallel/device_scopes.h"

#include <map>
#include <set>
#include <string>

#include "executor/feed_values.h"
#include "executor/parallel/parallel_executor.h"

namespace millrace::executor {
namespace {

bool is_holder(const Var& var) {
  return var.kind() == VarKind::kFeedMinibatch || var.kind() == VarKind::kFetchList ||
         var.kind() == VarKind::kFeedList;
}

std::set<std::string> used_names(const Program& program) {
  std::set<std::string> used;
  for (const Block& block : program.blocks()) {
    for (const Op& op : block.ops()) {
      for (const llvm::StringRef name : op.input_names()) used.insert(name.str());
      for (const llvm::StringRef name : op.output_names()) used.insert(name.str());
    }
  }
  return used;
}

// Persistable vars that the programs declare, with the number of devices that use each.
std::map<std::string, int> count_users(const std::vector<std::unique_ptr<Program>>& programs) {
  std::map<std::string, int> users;
  for (const std::unique_ptr<Program>& program : programs) {
    const std::set<std::string> used = used_names(*program);
    for (const Block& block : program->blocks()) {
      for (const Var& var : block.vars()) {
        if (!var.persistable() || is_holder(var)) continue;
        users[var.name().str()] += used.count(var.name().str()) > 0 ? 1 : 0;
      }
    }
  }
  return users;
}

// Names that exist in the other executor refer to its values; new ones are private to each device.
void add_private(const std::map<std::string, int>& users, DeviceScopes& result) {
  for (const auto& [name, count] : users) {
    for (Scope* const scope : result.scopes) {
      if (scope->find(name) == nullptr) scope->local(name);
    }
  }
}

Status copy_shared(const std::map<std::string, int>& users, DeviceScopes& result) {
  Scope& first = *result.scopes.front();
  for (const auto& [name, count] : users) {
    Value& original = first.local(name);
    if (count < 2) continue;
    for (size_t d = 1; d < result.scopes.size(); ++d) {
      Value& copy = result.scopes[d]->local(name);
      if (original.initialized()) MILLRACE_RETURN_IF_ERROR(copy_value(original, copy));
    }
  }
  return Ok();
}

}  // namespace

StatusOr<DeviceScopes> make_device_scopes(Scope& scope,
                                          const std::vector<std::unique_ptr<Program>>& programs,
                                          const ParallelOptions& options) {
  DeviceScopes result;
  const std::map<std::string, int> users = count_users(programs);
  const ParallelExecutor* const from = options.share_vars_from;
  for (int d = 0; d < options.devices; ++d) {
    if (d == 0 && from == nullptr) {
      result.scopes.push_back(&scope);
      continue;
    }
    Scope* const parent = from == nullptr ? &scope : &from->local_scope(d);
    result.owned.push_back(std::make_unique<Scope>(parent));
    result.scopes.push_back(result.owned.back().get());
  }
  if (from != nullptr) {
    add_private(users, result);
  } else {
    MILLRACE_RETURN_IF_ERROR(copy_shared(users, result));
  }
  return result;
}

}  // namespace millrace::executor
