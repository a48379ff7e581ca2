#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "fleet/launch/plan.h"
#include "framework/base/status.h"

namespace millrace::fleet {

/// How the children of a job are run.
struct SupervisorOptions {
  /// Of every child. Where it has a port for metrics, that stands for "{metrics}" in the words, and
  /// is added as "--metrics PORT" if no word has it.
  std::vector<std::string> command;
  std::string log_dir = "log";  ///< "<role>.<rank>.log" for each child; is made
  bool append_logs = false;     ///< else logs of an earlier job are replaced
  /// From the request to end (SIGTERM) to the end by force (SIGKILL).
  int64_t grace_ms = 10'000;
  int last_lines = 20;  ///< of the log of the first failure, in the report
  /// Receives lines for people.
  std::function<void(const std::string&)> say = [](const std::string& /*line*/) {};
};

/// What became of a job.
struct JobOutcome {
  int code = 0;            ///< 0, the exit code of the first child that failed, or 128 + signal
  bool by_signal = false;  ///< SIGINT or SIGTERM ended the launcher; 130 or 143
  std::string report;      ///< of the first failure: who, how, when, and the last lines of its log
};

/// Starts all children, each in a process group of its own, and waits for them. When one fails, or
/// a signal asks the launcher to end, the others are asked to end and then made to, their own
/// children included. Servers may still run when the last trainer is done; they get the grace time.
/// If the launcher is killed, its children are asked to end.
/// Errors: kNotFound where the command cannot be started, kIo for log files, kResource.
/// Thread-safety: one job at a time in a process; the caller has no other children that matter.
StatusOr<JobOutcome> supervise(const std::vector<ChildPlan>& children,
                               const SupervisorOptions& options);

}  // namespace millrace::fleet
