#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "io/checkpoint/folder.h"
#include "io/checkpoint/folder_lock.h"
#include "io/checkpoint/reshard.h"
#include "jobs/checkpoint/servers.h"
#include "tools/checkpoint/byte_progress.h"
#include "tools/checkpoint/options.h"
#include "tools/checkpoint/write_params.h"

namespace millrace::tools {
namespace {

StatusOr<int> wanted_ranks(const CheckpointFlags& flags) {
  if (flags.pservers.empty() == (flags.ranks == 0))
    return Status(StatusCode::kUsage, "reshard: expected exactly one of --pservers and --ranks");
  if (flags.ranks > 0) return flags.ranks;
  if (flags.pservers.front() == ',' || flags.pservers.back() == ',' ||
      flags.pservers.find(",,") != std::string::npos)
    return Status(StatusCode::kUsage, "--pservers: an endpoint is empty");
  return static_cast<int>(std::ranges::count(flags.pservers, ',')) + 1;
}

void write_entries(JsonWriter& out, const char* key,
                   const std::vector<io::CheckpointEntry>& entries) {
  out.key(key).begin_array();
  for (const io::CheckpointEntry& entry : entries) {
    out.begin_object().member("step", entry.step).member("folder", entry.folder);
    out.member("complete", entry.complete).end_object();
  }
  out.end_array();
}

}  // namespace

StatusOr<int> checkpoint_reshard(Tool& tool, const CheckpointFlags& flags) {
  if (tool.common().output.empty())
    return Status(StatusCode::kUsage, "reshard: expected -o with the folder of the output");
  std::error_code error;
  if (!flags.source.slices.empty() || !flags.to_slices.empty() ||
      std::filesystem::is_directory(flags.paths[0] + "/server-0", error))
    return reshard_servers(tool, flags);
  MILLRACE_ASSIGN_OR_RETURN(const int ranks, wanted_ranks(flags));
  MILLRACE_ASSIGN_OR_RETURN(const std::string folder,
                            jobs::resolve_checkpoint(flags.source, flags.paths[0]));
  MILLRACE_ASSIGN_OR_RETURN(const auto from,
                            io::Checkpoint::open(folder, jobs::load_options(flags.source, folder)));
  const WriteReport report{"reshard",
                           "checkpoint",
                           "checkpoint",
                           from.manifest().value_names().size(),
                           from.manifest().bytes(),
                           ranks};
  if (flags.dry_run) {
    MILLRACE_RETURN_IF_ERROR(
        check_writable(tool, {tool.common().output + "/" + std::string(io::kManifestName)}));
    MILLRACE_RETURN_IF_ERROR(report_written(tool, flags, report));
    return kDone;
  }
  {
    ByteProgress progress = progress_of(tool, flags, "reshard", from.manifest().bytes());
    io::ReshardOptions options;
    options.ranks = ranks;
    options.axis = flags.axis;
    options.split_whole = flags.split_whole;
    options.rows_by_remainder = flags.rows == "remainder";
    options.max_memory_bytes = static_cast<uint64_t>(flags.max_memory);
    options.save.replace = tool.common().force ? Replace::kYes : Replace::kNo;
    options.save.sync = flags.sync;
    MILLRACE_ASSIGN_OR_RETURN(const auto point, kill_point_of(flags));
    options.save.calls = ps::file_calls_with(point, "reshard", flags.source.calls);
    options.save.block_bytes = from.manifest().block_bytes;
    options.save.progress = progress.callback();
    MILLRACE_RETURN_IF_ERROR(io::reshard_checkpoint(from, tool.common().output, options));
  }
  MILLRACE_RETURN_IF_ERROR(report_written(tool, flags, report));
  return kDone;
}

StatusOr<int> checkpoint_gc(Tool& tool, const CheckpointFlags& flags) {
  io::Garbage garbage;
  // A folder of snapshots has one folder of checkpoints per server.
  std::vector<std::string> roots = jobs::server_folders(flags.paths[0]);
  if (roots.empty()) roots = flags.paths;
  for (const std::string& root : roots) {
    // a server that writes there has newer snapshots than this program sees
    std::vector<io::FolderLock> locks;
    if (!flags.dry_run) {
      MILLRACE_ASSIGN_OR_RETURN(locks, io::lock_if_used(root, "checkpoint gc"));
    }
    MILLRACE_ASSIGN_OR_RETURN(
        io::Garbage found,
        io::collect_garbage(root, flags.keep, flags.all_incomplete, flags.dry_run));
    std::ranges::move(found.removed, std::back_inserter(garbage.removed));
    std::ranges::move(found.kept, std::back_inserter(garbage.kept));
  }
  if (tool.common().json) {
    JsonWriter out;
    out.begin_object();
    out.key("schema").begin_object().member("name", "millrace.checkpoint_gc");
    out.member("version", 1).end_object().member("dry_run", flags.dry_run);
    write_entries(out, "removed", garbage.removed);
    write_entries(out, "kept", garbage.kept);
    MILLRACE_RETURN_IF_ERROR(tool.write_output(out.end_object().take()));
    return kDone;
  }
  std::string text;
  for (const io::CheckpointEntry& entry : garbage.removed) {
    text += fmt::format("{} step {}{}{}\n", flags.dry_run ? "would remove" : "removed", entry.step,
                        entry.complete ? "" : ", incomplete",
                        roots.size() > 1 ? " of " + printable(entry.folder) : "");
  }
  MILLRACE_RETURN_IF_ERROR(tool.write_output(text));
  return kDone;
}

}  // namespace millrace::tools
