#include "ps/server/snapshot_identity.h"

#include <algorithm>
#include <set>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "framework/text_form/print.h"
#include "ps/table/table_handler.h"

namespace millrace::ps {
namespace {

constexpr llvm::StringRef kJob = "job ";
constexpr llvm::StringRef kPlan = "plan: ";

// "var w f32 [2, 3]"
std::string var_line(llvm::StringRef name, const Var& var) {
  std::string line = fmt::format("var {}", name);
  if (!var.spec().has_tensor()) return line;
  const bool rows = var.kind() == VarKind::kSelectedRows;
  return line + fmt::format(" {}{} [{}]", rows ? "rows of " : "", dtype_name(var.dtype()),
                            fmt::join(var.dims(), ", "));
}

// An op with its attributes in one line.
std::string op_line(const Op& op) {
  std::string text = print_op(op, {.callstack = false});
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// \param how  further words about the mode
std::set<std::string> lines_of_server(const TablesServer& server, const std::string& how) {
  std::set<std::string> lines{fmt::format("mode {}{}", server_mode_name(server.mode), how),
                              fmt::format("server {}", server.server),
                              fmt::format("trainers {}", server.trainers)};
  // mode, trainers and the ops that update parameters have lines of their own
  for (const std::string& fact : server.plan)
    if (!is_training(fact)) lines.insert(kPlan.str() + fact);
  for (const int id : server.tables) lines.insert(fmt::format("table {}", id));
  return lines;
}

// The lines of a record without the name of the job.
std::set<std::string> lines_of(std::string_view text) {
  llvm::SmallVector<llvm::StringRef, 0> lines;
  llvm::StringRef(text.data(), text.size()).split(lines, '\n', -1, false);
  std::set<std::string> kept;
  for (const llvm::StringRef line : lines)
    if (!line.startswith(kJob)) kept.insert(line.str());
  return kept;
}

bool is_plan(llvm::StringRef line) {
  return line.startswith(kPlan);
}

// The line with the name of the job; empty if it has none.
std::string job_line(std::string_view text) {
  const llvm::StringRef first = llvm::StringRef(text.data(), text.size()).split('\n').first;
  return first.startswith(kJob) ? first.str() : std::string();
}

// The first line that only `lines` have.
std::string only_in(const std::set<std::string>& lines, const std::set<std::string>& others) {
  for (const std::string& line : lines)
    if (!others.contains(line)) return "'" + line + "'";
  return "nothing";
}

}  // namespace

StatusOr<int64_t> number_in_note(const std::map<std::string, std::string>& notes,
                                 const std::string& name) {
  const auto note = notes.find(name);
  int64_t number = 0;
  if (note == notes.end()) return number;
  if (!llvm::StringRef(note->second).getAsInteger(10, number) && number >= 0) return number;
  return InvalidData("the manifest has '{}' for {}, expected a number", note->second, name);
}

std::string identity_of(const TablesServer& server) {
  return fmt::format("{}\n", fmt::join(lines_of_server(server, ""), "\n"));
}

std::string identity_of(const ServerCore& core) {
  TablesServer server{core.plan.mode, core.plan.server, core.plan.trainers, core.options.plan, {}};
  if (core.options.tables != nullptr) server.tables = core.options.tables->ids();
  std::set<std::string> lines =
      lines_of_server(server, fmt::format("{}{}", core.plan.federated ? " federated" : "",
                                          core.plan.dc_asgd ? " dc_asgd" : ""));
  // block 0 has only listen_and_serv; the checkpoint block does not change values
  for (size_t index = 1; index < core.program().block_count(); ++index) {
    if (static_cast<int32_t>(index) == core.plan.checkpoint_block) continue;
    int64_t position = 0;
    for (const Op& op : core.program().block(index).ops())
      lines.insert(fmt::format("op {} of block {}: {}", position++, index, op_line(op)));
  }
  for (const auto& entry : core.vars()) {
    const Var* const var = entry.getValue().var;
    if (var != nullptr && var->persistable()) lines.insert(var_line(entry.getKey(), *var));
  }
  const std::string& job = core.options.job;
  return fmt::format("{}{}\n", job.empty() ? "" : (kJob + job + "\n").str(),
                     fmt::join(lines, "\n"));
}

Status check_identity(std::string_view stored, std::string_view own) {
  const auto fail = [](const std::string& expected, const std::string& found) {
    return InvalidData("the snapshot belongs to another job: expected {}, found {}", expected,
                       found)
        .with_hint(
            "name the snapshot folder of this job, or load the values of the other one: checkpoint "
            "reshard");
  };
  const std::string job = job_line(own);
  const std::string other = job_line(stored);
  if (!job.empty() && !other.empty() && job != other)
    return fail("'" + job + "'", "'" + other + "'");
  std::set<std::string> expected = lines_of(own);
  std::set<std::string> found = lines_of(stored);
  if (llvm::none_of(expected, is_plan) || llvm::none_of(found, is_plan)) {
    std::erase_if(expected, is_plan);
    std::erase_if(found, is_plan);
  }
  return expected == found ? Ok() : fail(only_in(expected, found), only_in(found, expected));
}

std::string layout_in(std::string_view identity) {
  std::string layout;
  for (const std::string& line : lines_of(identity))
    if (is_plan(line)) layout += line.substr(kPlan.size()) + "\n";
  return layout;
}

Status check_layout(std::string_view stored, const PlanFacts& own) {
  const std::set<std::string> lines = lines_of(stored);
  PlanFacts theirs(lines.begin(), lines.end());
  PlanFacts ours = own;
  // values fit any mode and number of trainers
  for (PlanFacts* const facts : {&theirs, &ours})
    std::erase_if(*facts, [](const std::string& fact) { return is_training(fact); });
  if (Status status = compare_plans(theirs, "the snapshot", ours, "this server"); !status.ok())
    return InvalidData("the snapshot was made for the servers of another job: {}", status.message())
        .with_hint("name the snapshot folder of this job, or reshard for its slices.json");
  return Ok();
}

}  // namespace millrace::ps
