#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/save.h"
#include "jobs/checkpoint/servers.h"

namespace millrace::jobs {

/// The servers of a fleet job, as its folder describes them.
struct FleetServers {
  std::vector<std::string> descriptions;  ///< ps_desc.txt of each server
  std::vector<std::string> endpoints;     ///< of each server
  int workers = 1;                        ///< of the job
  bool is_sync = true;
};

/// Snapshots of the servers of a fleet job, one of each server, all of one step.
class FleetSnapshots {
 public:
  /// \param servers  of the job that wrote the snapshots
  /// Errors: as for ServerSnapshots::open(); kInvalidData for snapshots of another job, and for a
  /// table that the job does not have.
  static StatusOr<FleetSnapshots> open(const std::string& root, FleetServers servers,
                                       const SnapshotOptions& options);

  [[nodiscard]] const std::vector<io::Checkpoint>& snapshots() const { return snapshots_; }
  [[nodiscard]] const FleetServers& servers() const { return servers_; }
  [[nodiscard]] int64_t step() const { return step_; }
  [[nodiscard]] uint64_t bytes() const;

 private:
  std::vector<io::Checkpoint> snapshots_;
  FleetServers servers_;
  int64_t step_ = 0;
};

/// Writes the snapshots for another number of servers or workers, to
/// `<output>/server-<i>/step-<n>`: rows with all their values, keys that wait for admission, dense
/// parameters with the state of their optimizer, and the rate. A synchronous job continues at the
/// step of the snapshots. Streams rows and dense parameters.
///
/// \param to         servers of the new job, whose tables must be those of the snapshots
/// \param max_bytes  of tensor data held at a time; at least one row is held
/// \param options    step and calls are ignored
/// Errors: kInvalidData for a job with other tables or of another mode, and for servers whose
/// scalars of one table differ; those of TableReshard::open(), of reading and of writing.
Status reshard_fleet(const FleetSnapshots& from, const FleetServers& to, const std::string& output,
                     uint64_t max_bytes, io::CheckpointSaveOptions options);

}  // namespace millrace::jobs
