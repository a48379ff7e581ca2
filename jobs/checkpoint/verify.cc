#include "jobs/checkpoint/verify.h"

#include <filesystem>
#include <utility>

#include "framework/base/errors.h"
#include "jobs/checkpoint/fits_program.h"
#include "jobs/checkpoint/servers.h"

namespace millrace::jobs {
namespace {

namespace fs = std::filesystem;

void verify_folder(const SourceOptions& options, const std::string& folder, const Program* program,
                   const VerifyProgress& progress, VerifyOutcome& outcome) {
  outcome.looked_at.push_back(folder);
  const auto checkpoint = io::Checkpoint::open(folder, load_options(options, folder));
  if (!checkpoint.ok()) {
    outcome.wrong.push_back(checkpoint.status());
    return;
  }
  for (Status& status : checkpoint->verify(progress(folder, checkpoint->manifest().bytes())))
    outcome.wrong.push_back(std::move(status));
  if (program == nullptr) return;
  for (Status& status : check_fits_program(*checkpoint, *program))
    outcome.wrong.push_back(std::move(status));
}

Status verify_file(const SourceOptions& options, const std::string& path, VerifyOutcome& outcome) {
  outcome.looked_at.push_back(path);
  const auto source = open_source(options, path);
  if (!source.ok()) {
    outcome.wrong.push_back(source.status());
    return Ok();
  }
  SourceOptions here = options;
  here.program.clear();  // other paths may read these
  if (path != options.root) here.beside.clear();
  MILLRACE_RETURN_IF_ERROR(check_read(here, (*source)->form()).in_file(path));
  for (const std::string& name : (*source)->names()) {
    MILLRACE_RETURN_IF_ERROR(options.proceed());
    const auto value = (*source)->load(name);
    if (!value.ok()) outcome.wrong.push_back(value.status());
  }
  return Ok();
}

}  // namespace

// NOLINTNEXTLINE(misc-no-recursion): the depth is 2: folders server-<i> do not nest
Status verify_path(const SourceOptions& options, const std::string& path, const Program* program,
                   const VerifyProgress& progress, VerifyOutcome& outcome) {
  std::error_code error;
  if (!fs::exists(path, error)) return NotFound("no such file or folder").in_file(path);
  const bool folder = fs::is_directory(path, error);
  if (folder && has_manifest(options, path)) {
    if (options.step >= 0) MILLRACE_RETURN_IF_ERROR(resolve_checkpoint(options, path).status());
    verify_folder(options, path, program, progress, outcome);
    return Ok();
  }
  if (const std::vector<std::string> servers = server_folders(path); !servers.empty()) {
    if (options.step >= 0)
      return Status(StatusCode::kUsage,
                    "options.step: found snapshots of servers, all of which are verified")
          .in_file(path);
    for (const std::string& server : servers)
      MILLRACE_RETURN_IF_ERROR(verify_path(options, server, program, progress, outcome));
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const auto entries, folder
                                                    ? list_steps(options, path)
                                                    : StatusOr(std::vector<io::CheckpointEntry>()));
  if (!folder || entries.empty()) return verify_file(options, path, outcome);
  bool any = false;
  for (const io::CheckpointEntry& entry : entries) {
    if (!entry.complete || (options.step >= 0 && entry.step != options.step)) continue;
    any = true;
    verify_folder(options, entry.folder, program, progress, outcome);
  }
  if (any) return Ok();
  return NotFound("found no complete checkpoint").in_file(path);
}

}  // namespace millrace::jobs
