// checkpoint reshard with --slices and --to-slices: snapshots for the servers of another job.
#include <vector>

#include <fmt/format.h>

#include "io/checkpoint/folder.h"
#include "io/checkpoint/folder_lock.h"
#include "jobs/checkpoint/servers.h"
#include "jobs/checkpoint/staged_folder.h"
#include "jobs/config/typed_tables.h"
#include "tools/checkpoint/byte_progress.h"
#include "tools/checkpoint/options.h"
#include "tools/checkpoint/write_params.h"

namespace millrace::tools {

StatusOr<int> reshard_servers(Tool& tool, const CheckpointFlags& flags) {
  if (flags.source.slices.empty() || flags.to_slices.empty()) {
    return Status(
        StatusCode::kUsage,
        "reshard: snapshots of servers need both --slices of the old job and --to-slices of the "
        "new job");
  }
  if (flags.ranks != 0 || !flags.pservers.empty() || flags.axis != 0 || flags.split_whole ||
      flags.rows != CheckpointFlags().rows) {
    return Status(StatusCode::kUsage,
                  "reshard: --ranks, --pservers, --axis, --cut-whole and --rows have no effect on "
                  "snapshots of servers; --to-slices says how they are split");
  }
  MILLRACE_ASSIGN_OR_RETURN(const jobs::ServerSnapshots from,
                            jobs::ServerSnapshots::open(flags.paths[0], flags.source.slices,
                                                        jobs::snapshot_options(flags.source)));
  MILLRACE_ASSIGN_OR_RETURN(
      const transpiler::SlicesFile to,
      jobs::read_slices_of_servers(flags.to_slices, jobs::snapshot_options(flags.source)));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<ps::TypedTable> tables,
                            jobs::read_typed_tables(flags.to_slices));
  const WriteReport report{"reshard",    "servers",
                           "servers",    from.vars().size(),
                           from.bytes(), static_cast<int>(to.properties.endpoints.size())};
  const std::string& output = tool.common().output;
  if (flags.dry_run) {
    std::vector<std::string> manifests;
    for (size_t i = 0; i < to.properties.endpoints.size(); ++i) {
      manifests.push_back(
          io::checkpoint_folder(fmt::format("{}/server-{}", output, i), from.step()) + "/" +
          std::string(io::kManifestName));
    }
    MILLRACE_RETURN_IF_ERROR(check_writable(tool, manifests));
    MILLRACE_RETURN_IF_ERROR(report_written(tool, flags, report));
    return kDone;
  }
  {
    ByteProgress progress = progress_of(tool, flags, "reshard", from.bytes());
    io::CheckpointSaveOptions options;
    options.replace = tool.common().force ? Replace::kYes : Replace::kNo;
    options.sync = flags.sync;
    MILLRACE_ASSIGN_OR_RETURN(const auto point, kill_point_of(flags));
    options.calls = ps::file_calls_with(point, "reshard", flags.source.calls);
    options.progress = progress.callback();
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<io::FolderLock> locks,
                              io::lock_used_in(output, "checkpoint reshard"));
    // Snapshots of two jobs in one folder would be taken for those of one job.
    MILLRACE_ASSIGN_OR_RETURN(jobs::StagedFolder staged,
                              jobs::StagedFolder::create(output, options.replace));
    MILLRACE_RETURN_IF_ERROR(jobs::reshard_snapshots(
        from, to, tables, staged.path(), static_cast<uint64_t>(flags.max_memory), options));
    ps::reach(point, "reshard/before-publish");
    MILLRACE_RETURN_IF_ERROR(staged.commit(flags.sync));
  }
  MILLRACE_RETURN_IF_ERROR(report_written(tool, flags, report));
  return kDone;
}

}  // namespace millrace::tools
