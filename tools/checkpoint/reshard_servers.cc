// checkpoint reshard with --slices and --to-slices: snapshots for the servers of another job.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "io/checkpoint/folder.h"
#include "io/checkpoint/folder_lock.h"
#include "jobs/checkpoint/reshard_fleet.h"
#include "jobs/checkpoint/servers.h"
#include "jobs/checkpoint/staged_folder.h"
#include "jobs/config/typed_tables.h"
#include "jobs/ps/fleet_role.h"
#include "tools/checkpoint/byte_progress.h"
#include "tools/checkpoint/options.h"
#include "tools/checkpoint/write_params.h"

namespace millrace::tools {
namespace reshard_servers_parts {
namespace {

// Writes the snapshots below a folder.
using WriteSnapshots = std::function<Status(const std::string&, io::CheckpointSaveOptions)>;

Status check_flags(const CheckpointFlags& flags) {
  if (flags.source.slices.empty() || flags.to_slices.empty())
    return Status(
        StatusCode::kUsage,
        "reshard: snapshots of servers need both --slices of the old job and --to-slices of the "
        "new job");
  if (flags.ranks != 0 || !flags.pservers.empty() || flags.axis != 0 || flags.split_whole ||
      flags.rows != CheckpointFlags().rows)
    return Status(StatusCode::kUsage,
                  "reshard: --ranks, --pservers, --axis, --cut-whole and --rows have no effect on "
                  "snapshots of servers; --to-slices says how they are split");
  return Ok();
}

Status check_outputs(const Tool& tool, const WriteReport& report, int64_t step) {
  std::vector<std::string> manifests;
  for (int i = 0; i < *report.ranks; ++i)
    manifests.push_back(
        io::checkpoint_folder(fmt::format("{}/server-{}", tool.common().output, i), step) + "/" +
        std::string(io::kManifestName));
  return check_writable(tool, manifests);
}

StatusOr<int> write_all(Tool& tool, const CheckpointFlags& flags, const WriteReport& report,
                        int64_t step, const WriteSnapshots& write) {
  const std::string& output = tool.common().output;
  if (flags.dry_run) {
    MILLRACE_RETURN_IF_ERROR(check_outputs(tool, report, step));
    MILLRACE_RETURN_IF_ERROR(report_written(tool, flags, report));
    return kDone;
  }
  {
    ByteProgress progress = progress_of(tool, flags, "reshard", report.bytes);
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
    MILLRACE_RETURN_IF_ERROR(write(staged.path(), options));
    ps::reach(point, "reshard/before-publish");
    MILLRACE_RETURN_IF_ERROR(staged.commit(flags.sync));
  }
  MILLRACE_RETURN_IF_ERROR(report_written(tool, flags, report));
  return kDone;
}

StatusOr<int> reshard_fleet_job(Tool& tool, const CheckpointFlags& flags) {
  MILLRACE_ASSIGN_OR_RETURN(jobs::FleetServers old, jobs::read_fleet_servers(flags.source.slices));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::FleetServers to, jobs::read_fleet_servers(flags.to_slices));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::FleetSnapshots from,
                            jobs::FleetSnapshots::open(flags.paths[0], std::move(old),
                                                       jobs::snapshot_options(flags.source)));
  const WriteReport report{"reshard",    "servers",
                           "servers",    from.snapshots().front().manifest().tensors.size(),
                           from.bytes(), static_cast<int>(to.endpoints.size())};
  return write_all(tool, flags, report, from.step(),
                   [&](const std::string& output, io::CheckpointSaveOptions options) {
                     return jobs::reshard_fleet(from, to, output,
                                                static_cast<uint64_t>(flags.max_memory), options);
                   });
}

}  // namespace
}  // namespace reshard_servers_parts

StatusOr<int> reshard_servers(Tool& tool, const CheckpointFlags& flags) {
  using namespace reshard_servers_parts;
  MILLRACE_RETURN_IF_ERROR(check_flags(flags));
  if (jobs::is_fleet_job(flags.source.slices) || jobs::is_fleet_job(flags.to_slices))
    return reshard_fleet_job(tool, flags);
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
  return write_all(tool, flags, report, from.step(),
                   [&](const std::string& output, io::CheckpointSaveOptions options) {
                     return jobs::reshard_snapshots(from, to, tables, output,
                                                    static_cast<uint64_t>(flags.max_memory),
                                                    options);
                   });
}

}  // namespace millrace::tools
