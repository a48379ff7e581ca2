#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/array.h"
#include "framework/base/status.h"

namespace millrace::api {

/// How snapshots of servers are written for another job.
struct ReshardOptions {
  uint64_t max_bytes = uint64_t{256} << 20U;  ///< of values held in memory at a time
  bool replace = false;                       ///< replace a folder that has snapshots (else kUsage)
  bool sync = true;                           ///< wait until the bytes are on the disk
};

/// The variables of a job with parameter servers, whole and under their original names, read from
/// the snapshots that its servers took (ServerOptions::snapshot_root):
/// `<root>/server-<i>/step-<n>`. Slices are joined by their offsets. Typed tables have rows only
/// for the keys that were used.
///
/// Uses the newest intact snapshot of each server; if these are of different steps, the newest step
/// that all servers have. To load them, start servers with this root as their snapshot_root.
/// Movable. Thread-safety: const functions may run concurrently.
class ServerCheckpoint {
 public:
  /// \param slices   the slices.json of the job that took the snapshots
  /// \param threads  that read files, at least 1
  /// Errors: kNotFound for a server without a snapshot; kInvalidData if the servers have no step in
  /// common, and for slices that do not add up to their variable; kIo.
  static StatusOr<ServerCheckpoint> open(const std::string& root, const std::string& slices,
                                         int threads = 1);
  ServerCheckpoint(ServerCheckpoint&&) noexcept;
  ServerCheckpoint& operator=(ServerCheckpoint&&) noexcept;
  ServerCheckpoint(const ServerCheckpoint&) = delete;
  ServerCheckpoint& operator=(const ServerCheckpoint&) = delete;
  ~ServerCheckpoint();

  /// Number of training steps that the values include.
  [[nodiscard]] int64_t step() const;
  /// Number of servers that took the snapshots.
  [[nodiscard]] int servers() const;
  /// Names of the variables, sorted: parameters, optimizer state, counters of schedules.
  [[nodiscard]] std::vector<std::string> names() const;
  /// A variable as one array. Errors: kNotFound; kInvalidArgument for a table that does not have
  /// all its rows; kInvalidData for bytes that differ from their checksum; kIo.
  [[nodiscard]] StatusOr<Array> get(const std::string& name) const;

  /// Writes the values for the servers of another job, which may have other numbers of servers and
  /// trainers, to `<output>/server-<i>/step-<n>`. The folder appears complete or not at all. Data
  /// is streamed. Only values are written: the new job counts its steps from 0.
  /// \param to_slices  the slices.json of the new job
  /// Errors: kNotFound for a variable that the snapshots do not have; kInvalidData for one of a
  /// different shape, and for a typed table that the new job does not have; kUsage; kIo.
  Status reshard(const std::string& to_slices, const std::string& output,
                 const ReshardOptions& options = {}) const;

 private:
  struct Parts;
  explicit ServerCheckpoint(std::unique_ptr<Parts> parts);
  PartsPtr<Parts> parts_;
};

/// Writes the snapshots of the servers of a fleet job for another one, which may have other numbers
/// of servers and workers; a synchronous job continues at their step. Data is streamed, and the
/// folder appears complete or not at all.
/// \param root    with the snapshots, `<root>/server-<i>/step-<n>`
/// \param from,to  folders of the two jobs, which `transpile-program --fleet` has written
/// Errors: kNotFound for a server without a snapshot; kInvalidData for snapshots of another job, a
/// job with other tables or of another mode; kUsage; kIo.
Status reshard_fleet_snapshots(const std::string& root, const std::string& from,
                               const std::string& to, const std::string& output,
                               const ReshardOptions& options = {});

}  // namespace millrace::api
