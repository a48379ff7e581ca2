#pragma once

#include <cstdint>
#include <string>

#include "framework/base/status.h"
#include "io/checkpoint/async_save.h"
#include "tools/common/tool.h"
#include "tools/run/session.h"

namespace millrace::tools {

/// Loads the checkpoint that --resume names into the scope of a session: the newest good one of
/// --checkpoint-dir for "auto" (none is fine), else that of a path.
///
/// \returns the steps that are done, 0 without a checkpoint
/// Errors: kUsage for "auto" without --checkpoint-dir; kNotFound for a var with a value that the
/// checkpoint does not have; those of reading.
StatusOr<int64_t> resume_run(const Tool& tool, const RunOptions& options, Session& session);

/// Saves a training run every --save-every steps into --checkpoint-dir, in the background; the
/// run waits only while the values are copied.
class RunCheckpoints {
 public:
  RunCheckpoints(const Tool& tool, const RunOptions& options) : tool_(tool), options_(options) {}

  /// Call behind each step. \param done  steps so far
  /// Errors: those of saving, with --fail-on-save-error; without it they are logged.
  Status after_step(const Session& session, int64_t done);
  /// Waits for the last save. Errors: as after_step().
  Status finish();

 private:
  Status judge(Status status) const;

  const Tool& tool_;
  const RunOptions& options_;
  io::AsyncSaver saver_;
};

}  // namespace millrace::tools
