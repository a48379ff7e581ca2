#pragma once

#include <cstdint>
#include <optional>

#include "executor/executor.h"
#include "jobs/data/feeder.h"
#include "jobs/run/run_steps.h"
#include "jobs/run/session.h"
#include "jobs/stats/progress_state.h"

namespace millrace::jobs {

/// What a run tells its user while it runs steps: warnings about feeds and fetches, the fetches of
/// every print period, the progress. Thread-safety: one call at a time.
class StepReport {
 public:
  /// All must outlive this.
  StepReport(const Session& session, const Feeder& feeder, const StepsOptions& options);

  /// Before the first step.
  void begin();
  /// After each step. \param feeds  of the step, or of a later one  \param values  the fetches
  /// \returns the value of the first fetch, if it is one number
  std::optional<double> note(int64_t step, const executor::NamedValues& feeds,
                             const executor::NamedValues& values);
  /// After the last step.
  void end();

 private:
  const Session& session_;
  const Feeder& feeder_;
  const StepsOptions& options_;
  ProgressState state_;
  bool began_ = false;  ///< a step has been noted
};

}  // namespace millrace::jobs
