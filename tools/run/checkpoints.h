#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "executor/observer.h"
#include "framework/base/status.h"
#include "io/checkpoint/async_save.h"
#include "io/checkpoint/gather.h"
#include "tools/common/tool.h"
#include "tools/run/session.h"

namespace millrace::tools {

/// Loads the checkpoint that --resume names into the scope of a session: the newest good one of
/// --checkpoint-dir for "auto" (none is fine), else that of a path.
///
/// Ranks that train together load together, from one folder or from disks of their own, however
/// many they were.
///
/// \returns the steps that are done, 0 without a checkpoint
/// Errors: kUsage for "auto" without --checkpoint-dir; kNotFound for a var with a value that the
/// checkpoint does not have; those of reading.
StatusOr<int64_t> resume_run(const Tool& tool, const RunOptions& options, Session& session);

/// The record of a checkpoint that says where the random numbers of each device stand: form,
/// version, a number for each.
std::string random_record(const std::vector<uint64_t>& positions);
/// Reads it. Errors: kInvalidData.
StatusOr<std::vector<uint64_t>> parse_random_record(std::string_view text);

/// What checkpoints have cost the thread that trains.
struct CheckpointCosts {
  int64_t saves = 0;
  double wall_seconds = 0;       ///< handing over, and waiting for copies and for the save before
  double processor_seconds = 0;  ///< of that thread
};

/// Keeps ops from changing a value before its copy for a checkpoint is made.
class CopyGuard final : public executor::StepObserver {
 public:
  /// \param scope  of the vars that are saved
  CopyGuard(io::AsyncSaver& saver, const Scope& scope, CheckpointCosts& costs)
      : saver_(saver), scope_(scope), costs_(costs) {}
  void before(const executor::Step& step) override;
  Status after(const executor::Step& /*step*/, Value* const* /*table*/) override { return Ok(); }

 private:
  io::AsyncSaver& saver_;
  const Scope& scope_;
  CheckpointCosts& costs_;
};

/// Saves a training run every --save-every steps into --checkpoint-dir, in the background. With one
/// device the values are copied there, too, while the next step computes what it will change them
/// by; with several the run waits for the copies. Ranks that train together write one checkpoint;
/// the background has a group of its own for that, but under MPI the run waits for the save.
class RunCheckpoints {
 public:
  RunCheckpoints(const Tool& tool, const RunOptions& options) : tool_(tool), options_(options) {}
  RunCheckpoints(const RunCheckpoints&) = delete;
  RunCheckpoints& operator=(const RunCheckpoints&) = delete;
  ~RunCheckpoints();

  /// Call before the first step; the session must outlive this object.
  /// \param observed  another observer has been set
  /// Errors: those of CollectiveGroup::subgroup().
  Status begin(Session& session, bool observed);
  /// Call behind each step. \param done  steps so far \param last  the run ends here, though it is
  /// not done, so that this step is saved in any case
  /// Errors: those of saving, with --fail-on-save-error; without it they are logged.
  Status after_step(const Session& session, int64_t done, bool last);
  /// Waits for the last save, and logs what saving has cost. Errors: as after_step().
  Status finish();

 private:
  Status save(const Session& session, int64_t done);
  Status write(const io::LocalState& copy, int64_t done);
  Status judge(Status status) const;

  const Tool& tool_;
  const RunOptions& options_;
  std::unique_ptr<executor::CollectiveGroup> ranks_;  ///< null: this process is alone
  std::unique_ptr<io::Gather> gather_;                ///< of those ranks, or of one
  io::AsyncSaver saver_;
  CheckpointCosts costs_;
  std::unique_ptr<CopyGuard> guard_;  ///< null: values are copied at once
  Session* watched_ = nullptr;        ///< whose ops the guard sees
};

}  // namespace millrace::tools
