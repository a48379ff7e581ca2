#pragma once

#include <cstdint>
#include <string>

#include "framework/base/status.h"
#include "io/checkpoint/async_save.h"
#include "io/checkpoint/checkpoint.h"
#include "ps/server/calls_record.h"
#include "ps/server/server_core.h"
#include "ps/table/sparse_table.h"

namespace millrace::ps {

/// Checkpoints of one server, written in the background while it serves: its variables, how far it
/// is, and which calls it has carried out, so that a server that takes up a snapshot knows repeats.
/// Each lies in `<root>/server-<number>/step-<n>`; three are kept.
///
/// Not thread-safe.
class Snapshots {
 public:
  /// \param core  whose options name the root
  explicit Snapshots(ServerCore& core);

  /// Takes up the newest snapshot that verifies: variables, and what is known of the trainers.
  /// \param applied  receives the steps that it has applied; unchanged without snapshot
  /// \returns false if there is none
  /// Errors: those of reading; kInvalidData for one of another program, and where there are
  /// snapshots but none can be loaded.
  StatusOr<bool> restore(int64_t& applied);
  /// Finds the newest snapshot of exactly so many steps, waiting for the one that is being written.
  /// Errors: kNotFound with the steps that there are; kIo.
  StatusOr<io::Checkpoint> find(int64_t applied);
  /// Takes that one up; later snapshots count as of another course of the job, so the same state is
  /// saved again as the newest. Nobody may use variables meanwhile.
  /// Errors: those of reading and writing.
  Status go_back(const io::Checkpoint& checkpoint);
  /// True if one is due.
  [[nodiscard]] bool is_due(int64_t applied, Clock::time_point now) const;
  /// Copies the state and begins to write it; waits for the one before. Nobody may change variables
  /// meanwhile, and the caller holds the mutex of the core.
  /// \param wait  returns only when it is on the disk
  /// Errors: those of writing, of this one or of the one before.
  Status take(int64_t applied, bool wait);
  /// True if the last one is of exactly so many steps.
  [[nodiscard]] bool is_at(int64_t applied) const { return number_ > 0 && taken_at_ == applied; }
  /// Waits for the one that is being written. \returns its outcome
  Status finish() { return saver_.wait(); }

 private:
  Status load(const io::Checkpoint& checkpoint, int64_t& applied);
  [[nodiscard]] StatusOr<TableState> table_states() const;
  Status load_tables(const io::Checkpoint& checkpoint);
  [[nodiscard]] CallsRecord calls(int64_t applied) const;
  Status take_calls(CallsRecord record, int64_t& applied);

  ServerCore& core_;
  std::string root_;
  io::AsyncSaver saver_;
  int64_t number_ = 0;  ///< of the last snapshot; rises also where steps do not
  int64_t taken_at_ = 0;
  Clock::time_point taken_;
};

}  // namespace millrace::ps
