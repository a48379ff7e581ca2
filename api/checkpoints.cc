#include "api/checkpoints.h"

#include <utility>

#include "executor/array_values.h"
#include "framework/base/errors.h"
#include "io/checkpoint/folder_lock.h"
#include "jobs/checkpoint/reshard_fleet.h"
#include "jobs/checkpoint/servers.h"
#include "jobs/checkpoint/staged_folder.h"
#include "jobs/config/typed_tables.h"
#include "jobs/ps/fleet_role.h"

namespace millrace::api {
namespace checkpoints {
namespace {

// Writes snapshots to a folder that appears complete or not at all.
template <typename Write>
Status write_staged(const std::string& output, const ReshardOptions& options, const char* who,
                    Write&& write) {
  io::CheckpointSaveOptions settings;
  settings.replace = options.replace ? Replace::kYes : Replace::kNo;
  settings.sync = options.sync;
  // Servers that use the folder would take the new snapshots for their own.
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<io::FolderLock> locks, io::lock_used_in(output, who));
  MILLRACE_ASSIGN_OR_RETURN(jobs::StagedFolder staged,
                            jobs::StagedFolder::create(output, settings.replace));
  MILLRACE_RETURN_IF_ERROR(write(staged.path(), settings));
  return staged.commit(options.sync);
}

}  // namespace
}  // namespace checkpoints

struct ServerCheckpoint::Parts {
  jobs::ServerSnapshots snapshots;
  jobs::SnapshotOptions reading;
};

ServerCheckpoint::ServerCheckpoint(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
ServerCheckpoint::ServerCheckpoint(ServerCheckpoint&&) noexcept = default;
ServerCheckpoint& ServerCheckpoint::operator=(ServerCheckpoint&&) noexcept = default;
ServerCheckpoint::~ServerCheckpoint() = default;

StatusOr<ServerCheckpoint> ServerCheckpoint::open(const std::string& root,
                                                  const std::string& slices, int threads) {
  if (threads < 1) return InvalidArgument("threads: expected at least 1, found {}", threads);
  jobs::SnapshotOptions reading;
  reading.threads = threads;
  MILLRACE_ASSIGN_OR_RETURN(jobs::ServerSnapshots snapshots,
                            jobs::ServerSnapshots::open(root, slices, reading));
  return ServerCheckpoint(
      std::unique_ptr<Parts>(new Parts{std::move(snapshots), std::move(reading)}));
}

int64_t ServerCheckpoint::step() const {
  return parts_->snapshots.step();
}
int ServerCheckpoint::servers() const {
  return static_cast<int>(parts_->snapshots.servers().size());
}

std::vector<std::string> ServerCheckpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, var] : parts_->snapshots.vars()) names.push_back(name);
  return names;
}

StatusOr<Array> ServerCheckpoint::get(const std::string& name) const {
  if (!parts_->snapshots.vars().contains(name))
    return NotFound("the snapshots have no variable '{}'", name);
  MILLRACE_ASSIGN_OR_RETURN(const Value value, parts_->snapshots.load(name));
  return executor::to_array(name, value);
}

Status ServerCheckpoint::reshard(const std::string& to_slices, const std::string& output,
                                 const ReshardOptions& options) const {
  MILLRACE_ASSIGN_OR_RETURN(const transpiler::SlicesFile to,
                            jobs::read_slices_of_servers(to_slices, parts_->reading));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<ps::TypedTable> tables,
                            jobs::read_typed_tables(to_slices));
  return checkpoints::write_staged(
      output, options, "ServerCheckpoint::reshard",
      [&](const std::string& folder, const io::CheckpointSaveOptions& settings) {
        return jobs::reshard_snapshots(parts_->snapshots, to, tables, folder, options.max_bytes,
                                       settings);
      });
}

Status reshard_fleet_snapshots(const std::string& root, const std::string& from,
                               const std::string& to, const std::string& output,
                               const ReshardOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(jobs::FleetServers old, jobs::read_fleet_servers(from));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::FleetServers servers, jobs::read_fleet_servers(to));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::FleetSnapshots snapshots,
                            jobs::FleetSnapshots::open(root, std::move(old), {}));
  return checkpoints::write_staged(
      output, options, "reshard_fleet_snapshots",
      [&](const std::string& folder, const io::CheckpointSaveOptions& settings) {
        return jobs::reshard_fleet(snapshots, servers, folder, options.max_bytes, settings);
      });
}

}  // namespace millrace::api
