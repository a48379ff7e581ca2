#pragma once

#include <chrono>
#include <cstdint>

#include "executor/collective/collective_group.h"
#include "framework/base/status.h"
#include "tools/common/signal_watch.h"

namespace millrace::tools {

/// Detects between two steps that a signal has arrived. All ranks of a job stop after the same
/// step, whichever of them received the signal. They synchronize about every 50 ms; the interval is
/// a number of steps, computed from the measured times of the steps.
class StopTogether {
 public:
  /// \param ranks  all ranks of the job, which must outlive this; null: there is only this process
  StopTogether(const SignalWatch& watch, executor::CollectiveGroup* ranks)
      : watch_(watch), ranks_(ranks) {}

  /// Call after each step, on all ranks. Errors: kDistributed.
  Status after_step();
  /// The signal that ends the run; 0: the run continues.
  [[nodiscard]] int signal() const { return ranks_ == nullptr ? watch_.seen() : agreed_; }
  [[nodiscard]] int exit_code() const { return 128 + signal(); }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] int64_t wanted_interval() const;

  const SignalWatch& watch_;
  executor::CollectiveGroup* ranks_;
  int agreed_ = 0;
  int64_t interval_ = 1;  ///< steps between two synchronizations
  int64_t steps_ = 0;     ///< steps since the last one
  Clock::time_point asked_ = Clock::now();
};

}  // namespace millrace::tools
