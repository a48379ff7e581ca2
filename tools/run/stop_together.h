#pragma once

#include <chrono>
#include <cstdint>

#include "executor/collective/collective_group.h"
#include "framework/base/status.h"
#include "tools/common/signal_watch.h"

namespace millrace::tools {

/// How a run learns between two steps that a signal has come. The ranks of a job end behind the
/// same step, whichever of them was told: they ask each other about every 50 ms, which the times of
/// their steps turn into a number of steps.
class StopTogether {
 public:
  /// \param ranks  all ranks of the job, which must outlive this; null: this process is alone
  StopTogether(const SignalWatch& watch, executor::CollectiveGroup* ranks)
      : watch_(watch), ranks_(ranks) {}

  /// Behind each step, on all ranks. Errors: kDistributed.
  Status after_step();
  /// The signal that ends the run; 0: it goes on.
  [[nodiscard]] int signal() const { return ranks_ == nullptr ? watch_.seen() : agreed_; }
  [[nodiscard]] int exit_code() const { return 128 + signal(); }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] int64_t wanted_interval() const;

  const SignalWatch& watch_;
  executor::CollectiveGroup* ranks_;
  int agreed_ = 0;
  int64_t interval_ = 1;  ///< steps between two questions
  int64_t steps_ = 0;     ///< since the last one
  Clock::time_point asked_ = Clock::now();
};

}  // namespace millrace::tools
