#include "executor/feed_targets.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/names.h"
#include "framework/op_attrs.h"
#include "transpiler/roles.h"

namespace millrace::executor {
namespace {

bool is_tensor(const Var& var) {
  return var.kind() == VarKind::kLodTensor || var.kind() == VarKind::kSelectedRows ||
         var.kind() == VarKind::kLodTensorArray;
}

std::vector<std::string> read_first(const Program& program) {
  std::vector<std::string> found;
  std::set<std::string> known;
  for (const Op& op : program.root().ops()) {
    for (const llvm::StringRef name : op.input_names()) {
      const Var* const var = program.root().find_var(name);
      if (var == nullptr || var->persistable() || !is_tensor(*var) || name == names::kEmpty)
        continue;
      if (known.insert(name.str()).second) found.push_back(name.str());
    }
    for (const llvm::StringRef name : op.output_names()) known.insert(name.str());
  }
  return found;
}

// Newer releases mark parameters. In older programs, updates name them; a program without updates
// has no other persistable vars than its parameters.
bool is_parameter(const Program& program, const Var& var) {
  if (!var.persistable() || !is_tensor(var) || var.spec().need_check_feed.value_or(false))
    return false;
  if (var.is_parameter()) return true;
  bool updates = false;
  bool reads = false;
  for (const Op& op : program.root().ops()) {
    if (op.type() == "feed" && op.first_output("Out") == var.name()) return false;
    if (transpiler::role::is_optimizer(op)) {
      updates = true;
      if (op.first_input("Param") == var.name()) return true;
    }
    reads = reads || llvm::is_contained(op.input_names(), var.name());
  }
  return reads && !updates && !program.root().has_writers(var.name());
}

}  // namespace

std::vector<std::string> targets_of(const Program& program, llvm::StringRef type) {
  std::vector<std::pair<int32_t, std::string>> found;
  for (const Op& op : program.root().ops()) {
    if (op.type() != type && op.type() != type.str() + "_v2") continue;
    const llvm::StringRef name = type == "feed" ? op.first_output("Out") : op.first_input("X");
    found.emplace_back(get_attr_or<int32_t>(op, "col", 0), name.str());
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  names.reserve(found.size());
  for (auto& [col, name] : found) names.push_back(std::move(name));
  return names;
}

std::vector<std::string> feeds_of(const Program& program) {
  std::vector<std::string> feeds = targets_of(program, "feed");
  if (!feeds.empty()) return feeds;
  for (const Var& var : program.root().vars()) {
    if (var.spec().need_check_feed.value_or(false)) feeds.push_back(var.name().str());
  }
  return feeds.empty() ? read_first(program) : feeds;
}

Status check_feed_name(const Program& program, llvm::StringRef name) {
  constexpr size_t kShown = 16;
  const Var* const var = program.root().find_var(name);
  if (var != nullptr && !var->persistable()) return Ok();
  Location place;
  place.var = name.str();
  if (var != nullptr) {
    if (!is_parameter(program, *var)) return Ok();
    return Status(StatusCode::kInvalidArgument, "feed: the var is a parameter of the program")
        .at(std::move(place))
        .with_hint("parameters are loaded, not fed: --params in the tools");
  }
  std::vector<std::string> feeds = feeds_of(program);
  const size_t count = feeds.size();
  feeds.resize(std::min(count, kShown));
  std::string known = count == 0 ? "the program is fed nothing"
                                 : fmt::format("it is fed {}", fmt::join(feeds, ", "));
  if (count > kShown) known += fmt::format(" and {} more", count - kShown);
  return Status(StatusCode::kInvalidArgument, "feed: the program has no such var; " + known)
      .at(std::move(place));
}

Status check_feed_names(const Program& program, const std::map<std::string, Value>& feeds) {
  std::optional<bool> complete;
  for (const auto& [name, value] : feeds) {
    if (program.root().find_var(name) == nullptr) {
      if (!complete)
        complete = llvm::all_of(feeds_of(program),
                                [&](const std::string& feed) { return feeds.count(feed) != 0; });
      if (*complete) continue;
    }
    MILLRACE_RETURN_IF_ERROR(check_feed_name(program, name));
  }
  return Ok();
}

}  // namespace millrace::executor
