#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "io/checkpoint/folder.h"
#include "jobs/checkpoint/fits_program.h"
#include "jobs/checkpoint/servers.h"
#include "tools/checkpoint/byte_progress.h"
#include "tools/checkpoint/options.h"
#include "tools/checkpoint/source.h"
#include "tools/common/program_options.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

// What was checked, and what is wrong with it.
struct VerifyOutcome {
  std::vector<std::string> looked_at;
  std::vector<Status> wrong;
};

void verify_folder(const Tool& tool, const CheckpointFlags& flags, const std::string& folder,
                   const Program* program, VerifyOutcome& outcome) {
  outcome.looked_at.push_back(folder);
  const auto checkpoint = io::Checkpoint::open(folder, load_options(tool, flags, folder));
  if (!checkpoint.ok()) {
    outcome.wrong.push_back(checkpoint.status());
    return;
  }
  ByteProgress progress =
      progress_of(tool, flags, "verify " + folder, checkpoint->manifest().bytes());
  for (Status& status : checkpoint->verify(progress.callback()))
    outcome.wrong.push_back(std::move(status));
  if (program == nullptr) return;
  for (Status& status : jobs::check_fits_program(*checkpoint, *program))
    outcome.wrong.push_back(std::move(status));
}

// Files without checksums: if the values can be read, the file passes.
void verify_file(const Tool& tool, const CheckpointFlags& flags, const std::string& path,
                 VerifyOutcome& outcome) {
  outcome.looked_at.push_back(path);
  const auto source = open_source(tool, flags, path);
  if (!source.ok()) {
    outcome.wrong.push_back(source.status());
    return;
  }
  for (const std::string& name : (*source)->names()) {
    if (!check_stopped(flags).ok()) return;
    const auto value = (*source)->load(name);
    if (!value.ok()) outcome.wrong.push_back(value.status());
  }
}

// NOLINTNEXTLINE(misc-no-recursion): the depth is 2: folders server-<i> do not nest
Status verify_path(const Tool& tool, const CheckpointFlags& flags, const std::string& path,
                   const Program* program, VerifyOutcome& outcome) {
  std::error_code error;
  if (!fs::exists(path, error)) return NotFound("no such file or folder").in_file(path);
  const bool folder = fs::is_directory(path, error);
  if (folder && has_manifest(flags, path)) {
    verify_folder(tool, flags, path, program, outcome);
    return Ok();
  }
  if (const std::vector<std::string> servers = jobs::server_folders(path); !servers.empty()) {
    for (const std::string& server : servers)
      MILLRACE_RETURN_IF_ERROR(verify_path(tool, flags, server, program, outcome));
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const auto entries, folder
                                                    ? list_steps(flags, path)
                                                    : StatusOr(std::vector<io::CheckpointEntry>()));
  if (!folder || entries.empty()) {
    verify_file(tool, flags, path, outcome);
    return Ok();
  }
  bool any = false;
  for (const io::CheckpointEntry& entry : entries) {
    if (!entry.complete || (flags.step >= 0 && entry.step != flags.step)) continue;
    any = true;
    verify_folder(tool, flags, entry.folder, program, outcome);
  }
  if (any) return Ok();
  return NotFound("found no complete checkpoint").in_file(path);
}

std::string verify_json(const VerifyOutcome& outcome) {
  JsonWriter out;
  out.begin_object();
  out.key("schema").begin_object().member("name", "millrace.checkpoint_verify");
  out.member("version", 1).end_object().member("ok", outcome.wrong.empty());
  out.key("looked_at").begin_array();
  for (const std::string& path : outcome.looked_at) out.value(path);
  out.end_array().key("findings").begin_array();
  for (const Status& status : outcome.wrong) {
    out.begin_object().member("code", status_code_name(status.code()));
    out.member("message", status.message());
    if (!status.location().file.empty()) out.member("file", status.location().file);
    if (!status.location().var.empty()) out.member("var", status.location().var);
    out.end_object();
  }
  return out.end_array().end_object().take();
}

}  // namespace

StatusOr<int> checkpoint_verify(Tool& tool, const CheckpointFlags& flags) {
  std::unique_ptr<Program> program;
  // A combined file needs the program for its names.
  if (!flags.program.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(program, read_program(tool, flags.program));
  }
  VerifyOutcome outcome;
  for (const std::string& path : flags.paths)
    MILLRACE_RETURN_IF_ERROR(verify_path(tool, flags, path, program.get(), outcome));
  MILLRACE_RETURN_IF_ERROR(check_stopped(flags));
  for (const Status& status : outcome.wrong) tool.report(status);
  if (tool.common().json) MILLRACE_RETURN_IF_ERROR(tool.write_output(verify_json(outcome)));
  if (!outcome.wrong.empty()) return kAnswerIsNo;
  for (const std::string& path : outcome.looked_at) tool.log(LogLevel::kInfo, path + " verifies");
  return kDone;
}

}  // namespace millrace::tools
