#include "ps/server/snapshot_identity.h"

#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "ps/table/table_handler.h"

namespace millrace::ps {
namespace {

constexpr llvm::StringRef kJob = "job ";

const char* mode_name(ServePlan::Mode mode) {
  switch (mode) {
    case ServePlan::Mode::kSync:
      return "sync";
    case ServePlan::Mode::kAsync:
      return "async";
    case ServePlan::Mode::kGeo:
      return "geo";
  }
  return "";
}

// "var w f32 [2, 3]"; the second word tells facts of one var apart from those of another.
std::string var_line(llvm::StringRef name, const Var& var) {
  std::string line = fmt::format("var {}", name);
  if (!var.spec().has_tensor()) return line;
  const bool rows = var.kind() == VarKind::kSelectedRows;
  return line + fmt::format(" {}{} [{}]", rows ? "rows of " : "", dtype_name(var.dtype()),
                            fmt::join(var.dims(), ", "));
}

// The facts by the words that name them.
std::map<std::string, std::string> facts_of(std::string_view text) {
  std::map<std::string, std::string> facts;
  llvm::SmallVector<llvm::StringRef, 0> lines;
  llvm::StringRef(text.data(), text.size()).split(lines, '\n', -1, false);
  for (const llvm::StringRef line : lines) {
    const auto [kind, rest] = line.split(' ');
    const bool is_list = kind == "var" || kind == "table";
    const std::string key =
        is_list ? (kind + " '" + rest.split(' ').first + "'").str() : kind.str();
    facts[key] = (is_list ? rest.split(' ').second : rest).str();
  }
  return facts;
}

}  // namespace

std::string identity_of(const ServerCore& core) {
  std::set<std::string> lines;
  if (!core.options.job.empty()) lines.insert((kJob + core.options.job).str());
  lines.insert(fmt::format("mode {}{}{}", mode_name(core.plan.mode),
                           core.plan.federated ? " federated" : "",
                           core.plan.dc_asgd ? " dc_asgd" : ""));
  for (const auto& entry : core.vars()) {
    const Var* const var = entry.getValue().var;
    if (var != nullptr && var->persistable()) lines.insert(var_line(entry.getKey(), *var));
  }
  if (core.options.tables != nullptr)
    for (const auto& [id, table] : core.options.tables->sparse())
      lines.insert(fmt::format("table {}", id));
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

Status check_identity(std::string_view stored, std::string_view own) {
  if (stored == own) return Ok();
  const auto found = facts_of(stored);
  const auto expected = facts_of(own);
  const auto fail = [](const std::string& what, const std::string& wanted,
                       const std::string& there) {
    return InvalidData("the snapshot belongs to another job: {}: expected {}, found {}", what,
                       wanted, there)
        .with_hint(
            "name the snapshot folder of this job, or load the values of the other one: checkpoint "
            "reshard");
  };
  for (const auto& [what, value] : expected) {
    const auto at = found.find(what);
    if (at == found.end()) {
      if (what != "job") return fail(what, value.empty() ? "it" : value, "none");
    } else if (at->second != value) {
      return fail(what, value, at->second);
    }
  }
  for (const auto& [what, value] : found) {
    if (what != "job" && !expected.contains(what))
      return fail(what, "none", value.empty() ? "it" : value);
  }
  return Ok();
}

}  // namespace millrace::ps
