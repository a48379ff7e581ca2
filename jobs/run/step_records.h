#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/check_nan.h"
#include "executor/parallel/timeline.h"
#include "executor/trace.h"
#include "jobs/run/session.h"

namespace millrace::jobs {

/// What to record while a session runs its steps.
struct RecordOptions {
  bool check_nan = false;  ///< end at the first op that writes a NaN or an infinity
  bool profile = false;    ///< times of all ops, as a Chrome trace and as a table
  bool op_table = false;   ///< the table only; one device
};

/// Observes the ops of a session, on one device or several. Thread-safety: one run at a time.
class StepRecords {
 public:
  /// Starts to observe; the result must live as long as the session runs steps.
  /// Errors: kUsage for check_nan together with times, and for op_table on several devices.
  static StatusOr<std::unique_ptr<StepRecords>> start(const RecordOptions& options,
                                                      Session& session);

  /// True if anything is observed.
  [[nodiscard]] bool observes() const;
  /// The recorded times as a Chrome trace.
  [[nodiscard]] std::string chrome_json() const;
  /// Lines for users: op types by their times, or the time of each of several devices in ops and
  /// in exchanges; empty if no times were recorded.
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  StepRecords(const RecordOptions& options, int devices);

  RecordOptions options_;
  int devices_;  ///< 0: one device without a ParallelExecutor
  executor::NanCheck nan_check_;
  executor::Trace trace_;
  executor::Timeline timeline_;
};

}  // namespace millrace::jobs
