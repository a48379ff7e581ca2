#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/async_save.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/folder_lock.h"
#include "ps/server/calls_record.h"
#include "ps/server/server_core.h"
#include "ps/server/step_rules.h"
#include "ps/table/sparse_table.h"

namespace millrace::ps {

/// Checkpoints of one server, written in the background while it serves: its variables, its step,
/// and the calls that it has carried out, so that a server that loads a snapshot recognizes
/// repeats. Each is in `<root>/server-<number>/step-<n>`. Kept are the last three that were due,
/// and those between and after them that were saved at the end of a process. Only one process at a
/// time may use such a folder (io::FolderLock).
///
/// Not thread-safe.
class Snapshots {
 public:
  /// \param core  its options name the root folder
  explicit Snapshots(ServerCore& core);

  /// Locks the folder, and loads the newest valid snapshot: variables, and the record of the
  /// trainers' calls.
  /// \param applied  receives the number of steps applied in the snapshot; unchanged without
  ///                 snapshot
  /// \returns false if there is none
  /// Errors: kResource naming the process that has the folder; those of reading; kInvalidData for a
  /// snapshot of another program, and if there are snapshots but none can be loaded.
  StatusOr<bool> restore(int64_t& applied);
  /// The term of the server that saved the snapshot that restore() loaded; 0: not known.
  [[nodiscard]] uint64_t term() const { return term_; }
  /// A snapshot and its number in the folder.
  struct Found {
    int64_t number = 0;
    int64_t applied = 0;  ///< its step
    io::Checkpoint checkpoint;
  };
  /// Finds the newest snapshot of exactly that step; waits for a snapshot that is being written.
  /// \param or_older  where there is none: the newest of the greatest step below
  /// Errors: kNotFound with the available steps; kIo.
  StatusOr<Found> find(int64_t applied, bool or_older);
  /// Loads that snapshot. Later snapshots belong to a discarded course of the job: they are
  /// removed, since find() would return one of them for a step whose snapshot is not written again.
  /// Then the same state is saved as the newest, with the calls of the processes that are known
  /// now. No other thread may use variables meanwhile.
  /// Errors: those of reading, removing and writing.
  Status go_back(const Found& found);
  /// True if a snapshot is due: at multiples of `snapshot_every`, whenever this process began, so
  /// that all servers of a job have snapshots of the same steps; and after `snapshot_interval`.
  [[nodiscard]] bool is_due(int64_t applied, Clock::time_point now) const;
  /// The record of the trainers' calls at a moment.
  struct Moment {
    int64_t applied = 0;
    std::string calls;
  };
  /// The caller must hold the mutex of the core, and variables must not be changed
  /// before take() has returned.
  [[nodiscard]] Moment moment(int64_t applied) const {
    const bool is_sync = core_.plan.mode == ServerMode::kSync;
    return {applied, calls_text(record_calls(core_.trainers, applied, is_sync))};
  }
  /// Copies the state and starts to write it; first waits for the previous snapshot. Without the
  /// mutex of the core, so that other calls go on. Errors: those of writing the previous snapshot,
  /// in which case this one is not started; of locking the folder; of memory for the copies.
  Status take(const Moment& moment);
  /// True if the last snapshot is of exactly that step, and was not reported to have failed.
  [[nodiscard]] bool is_at(int64_t applied) const {
    return number_ > 0 && taken_at_ == applied && !has_failed_;
  }
  /// Waits for the snapshot that is being written. \returns its outcome, once
  Status finish();

 private:
  /// Locks the folder unless that is done. \param patience  for a holder that may be ending
  Status lock(std::chrono::milliseconds patience);
  Status load(const io::Checkpoint& checkpoint, int64_t& applied);
  [[nodiscard]] StatusOr<TableState> table_states() const;
  Status load_tables(const io::Checkpoint& checkpoint);
  /// Fills in `saved_` from the folder.
  Status list_saved();
  [[nodiscard]] bool is_regular(int64_t applied) const;
  /// \returns how many of the newest snapshots stay; forgets the others
  int count_kept();
  Status take_calls(CallsRecord record, int64_t& applied);

  ServerCore& core_;
  std::string identity_;
  std::string root_;
  std::optional<io::FolderLock> lock_;  ///< released after the saver has finished
  io::AsyncSaver saver_;
  std::vector<bool> saved_;  ///< of each snapshot in the folder, oldest first: whether it was due
  int64_t number_ = 0;       ///< of the last snapshot; increases even if the step is the same
  uint64_t term_ = 0;
  int64_t steps_before_ = 0;  ///< that other servers had applied before this job
  int64_t taken_at_ = 0;
  bool has_failed_ = false;  ///< the last snapshot could not be written
  Clock::time_point taken_;
};

}  // namespace millrace::ps
