#include "fleet/runtime/local_state.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include "ps/values.h"

namespace millrace::fleet {
namespace {

// More than the usual number of steps between snapshots. Large states keep fewer copies.
constexpr size_t kMostSteps = 4096;
constexpr int64_t kMostBytes = int64_t{256} << 20;

using Values = LocalState::Values;

StatusOr<Values> copies(const std::vector<std::string>& names, const Scope& scope) {
  Values values;
  for (const std::string& name : names) {
    const Value* const value = scope.find(name);
    if (value == nullptr || !value->initialized()) continue;
    if (!value->holds<Tensor>() && !value->holds<SelectedRows>()) continue;
    MILLRACE_RETURN_IF_ERROR(ps::copy_value_into(*value, values[name]));
  }
  return values;
}

int64_t bytes_of_values(const Values& values) {
  int64_t bytes = 0;
  for (const auto& [name, value] : values) bytes += ps::bytes_of(value);
  return bytes;
}

std::set<std::string> remote_names(const Program& program, const transpiler::SlicesFile& slices) {
  std::set<std::string> remote;
  for (const transpiler::OriginSlices& origin : transpiler::slices_by_origin(slices.overview))
    remote.insert(origin.origin.name);
  for (const Op& op : program.root().ops()) {
    if (op.type() != "recv") continue;
    for (const llvm::StringRef name : op.output_names()) remote.insert(name.str());
  }
  return remote;
}

}  // namespace

LocalState::LocalState(const Program& program, const transpiler::SlicesFile& slices)
    : LocalState(program, remote_names(program, slices)) {}

LocalState::LocalState(const Program& program, const std::set<std::string>& remote) {
  std::set<std::string> written;
  for (const Op& op : program.root().ops()) {
    for (const llvm::StringRef name : op.output_names()) written.insert(name.str());
  }
  for (const Var& var : program.root().vars()) {
    if (!var.persistable()) continue;
    const std::string name = var.name().str();
    if (remote.contains(name)) {
      remote_.push_back(name);
      continue;
    }
    local_.push_back(name);
    if (written.contains(name)) changing_.push_back(name);
  }
}

Status LocalState::keep(int64_t step, const Scope& scope) {
  if (changing_.empty()) return Ok();
  // a step that is run again after an error may have changed the variables
  if (!kept_.empty() && kept_.back().step == step) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(Values values, copies(changing_, scope));
  const auto bytes = static_cast<size_t>(std::max<int64_t>(1, bytes_of_values(values)));
  const size_t most = most_.value_or(std::clamp<size_t>(kMostBytes / bytes, 2, kMostSteps));
  while (kept_.size() >= most) kept_.pop_front();
  kept_.push_back({step, std::move(values)});
  return Ok();
}

StatusOr<Values> LocalState::copy(const Scope& scope) const {
  return copies(local_, scope);
}

Status LocalState::restore(int64_t step, Values rest, Scope& scope) {
  while (!kept_.empty() && kept_.back().step > step) kept_.pop_back();
  if (!changing_.empty() && (kept_.empty() || kept_.back().step != step)) {
    return {StatusCode::kDistributed,
            fmt::format("the trainer cannot go back to step {}: only this trainer has '{}', and no "
                        "copy of that step is left",
                        step, changing_.front())};
  }
  if (!kept_.empty()) {
    for (auto& [name, value] : kept_.back().values) rest[name] = std::move(value);
    kept_.pop_back();  // the repeated step keeps it again
  }
  for (auto& [name, value] : rest)
    MILLRACE_RETURN_IF_ERROR(ps::copy_value_into(value, scope.local(name)));
  return Ok();
}

std::set<std::string> received_by(const Program& startup) {
  std::set<std::string> received;
  for (const Op& op : startup.root().ops()) {
    const bool is =
        op.type() == "recv" || llvm::any_of(op.input_names(), [&](llvm::StringRef name) {
          return received.contains(name.str());
        });
    if (!is) continue;
    for (const llvm::StringRef name : op.output_names()) received.insert(name.str());
  }
  return received;
}

std::vector<std::string> put_back(LocalState::Values&& values, Scope& scope) {
  std::vector<std::string> others;
  for (auto& [name, value] : values) {
    Value& to = scope.local(name);
    const auto* const now = to.get_if<Tensor>();
    const auto* const before = value.get_if<Tensor>();
    const bool differs =
        now != nullptr && before != nullptr && now->initialized() &&
        (now->dtype() != before->dtype() || now->bytes() != before->bytes() ||
         std::memcmp(now->raw(), before->raw(), static_cast<size_t>(now->bytes())) != 0);
    if (differs) others.push_back(name);
    to = std::move(value);
  }
  return others;
}

}  // namespace millrace::fleet
