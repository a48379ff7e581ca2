#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "fleet/launch/plan.h"
#include "framework/base/status.h"

namespace millrace::fleet {

/// How to run the children of a job.
struct SupervisorOptions {
  /// Command line of every child. If a child has a metrics port, "{metrics}" in the words is
  /// replaced by it; if no word contains that, "--metrics PORT" is appended.
  std::vector<std::string> command;
  std::string log_dir = "log";  ///< for "<role>.<rank>.log" of each child; created if missing
  bool append_logs = false;     ///< else logs of an earlier job are replaced
  /// Time from the request to end (SIGTERM) to forced termination (SIGKILL).
  int64_t grace_ms = 10'000;
  int last_lines = 20;  ///< lines of the failed child's log in the report
  /// Receives log lines.
  std::function<void(const std::string&)> say = [](const std::string& /*line*/) {};
};

/// The outcome of a job.
struct JobOutcome {
  int code = 0;            ///< 0, the exit code of the first child that failed, or 128 + signal
  bool by_signal = false;  ///< SIGINT or SIGTERM ended the launcher; 130 or 143
  std::string report;      ///< first failure: child, cause, time, end of its log
};

/// Starts all children, each in its own process group, and waits for them. When one fails, or a
/// signal ends the launcher, the others are requested to end and then forced, including their own
/// children. When the last trainer is done, servers may keep running for the grace time. If the
/// launcher is killed, its children are requested to end.
/// Errors: kNotFound if the command cannot be started, kIo for log files, kResource.
/// Thread-safety: one job at a time per process; the caller must not wait for children of its own.
StatusOr<JobOutcome> supervise(const std::vector<ChildPlan>& children,
                               const SupervisorOptions& options);

}  // namespace millrace::fleet
