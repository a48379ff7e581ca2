#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "executor/observer.h"
#include "framework/base/status.h"
#include "io/checkpoint/async_save.h"
#include "io/checkpoint/gather.h"
#include "jobs/run/session.h"

namespace millrace::jobs {

/// Loads the checkpoint that `resume` of the options names into the scope of a session. For "auto"
/// this is the newest intact one of their folder; none is not an error.
///
/// Ranks that train together also load together, from a shared folder or from separate disks. The
/// number of ranks may differ from that of the run that saved the checkpoint.
///
/// \returns the number of steps done, 0 without a checkpoint
/// Errors: kUsage for "auto" without a folder; kNotFound for a var with a value that is not
/// in the checkpoint; those of reading.
StatusOr<int64_t> resume_run(const CheckpointOptions& options, int threads, const LogSink& log,
                             Session& session);

/// The checkpoint record with the position of the random number generator of each device: form,
/// version, and a number per device.
std::string random_record(const std::vector<uint64_t>& positions);
/// Parses such a record. Errors: kInvalidData.
StatusOr<std::vector<uint64_t>> parse_random_record(std::string_view text);

/// The time that checkpoints cost the training thread.
struct CheckpointCosts {
  int64_t saves = 0;
  double wall_seconds = 0;       ///< starting saves, and waiting for copies and earlier saves
  double processor_seconds = 0;  ///< CPU time of that thread
};

/// Delays ops that would change a value until its copy for a checkpoint has been made.
class CopyGuard final : public executor::OpObserver {
 public:
  /// \param scope  of the vars that are saved
  CopyGuard(io::AsyncSaver& saver, const Scope& scope, CheckpointCosts& costs)
      : saver_(saver), scope_(scope), costs_(costs) {}
  void before(const executor::CompiledOp& compiled) override;
  Status after(const executor::CompiledOp& /*compiled*/, Value* const* /*table*/) override {
    return Ok();
  }

 private:
  io::AsyncSaver& saver_;
  const Scope& scope_;
  CheckpointCosts& costs_;
};

/// Saves a training run every `save_every` steps into a folder, in the background. With one
/// device the values are also copied in the background, while the next step runs; CopyGuard delays
/// ops that would overwrite them. With several devices the run waits for the copies. Ranks that
/// train together write one checkpoint; the background thread uses a separate group for that. Under
/// MPI the run waits for the save.
class RunCheckpoints {
 public:
  RunCheckpoints(CheckpointOptions options, LogSink log)
      : options_(std::move(options)), log_(std::move(log)) {}
  RunCheckpoints(const RunCheckpoints&) = delete;
  RunCheckpoints& operator=(const RunCheckpoints&) = delete;
  ~RunCheckpoints();

  /// Call before the first step; the session must outlive this object.
  /// \param observed  true if another observer has been set
  /// Errors: kInvalidArgument if the run starts from the beginning and the folder has checkpoints;
  /// those of CollectiveGroup::subgroup().
  Status begin(Session& session, bool observed);
  /// Call after each step. \param done  steps so far \param last  true if the run ends here early,
  /// so that this step is saved in any case
  /// Errors: those of saving, with `fail_on_save_error`; without it they are logged.
  Status after_step(const Session& session, int64_t done, bool last);
  /// Waits for the last save, and logs the cost of saving. Errors: as after_step().
  Status finish();

 private:
  Status check_folder(const Session& session) const;
  Status save(const Session& session, int64_t done);
  Status write(const io::LocalState& copy, int64_t done);
  /// The error of a save with `fail_on_save_error`; without it logs a warning and returns ok.
  Status warn_unless_fatal(Status status) const;

  CheckpointOptions options_;
  LogSink log_;
  std::unique_ptr<executor::CollectiveGroup> ranks_;  ///< null: there is only this process
  std::unique_ptr<io::Gather> gather_;                ///< of those ranks, or of one
  io::AsyncSaver saver_;
  CheckpointCosts costs_;
  std::unique_ptr<CopyGuard> guard_;  ///< null: values are copied at once
  Session* watched_ = nullptr;        ///< the guard observes its ops
};

}  // namespace millrace::jobs
