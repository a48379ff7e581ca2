#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "executor/collective/collective_group.h"
#include "framework/base/status.h"

namespace millrace::jobs {

/// Detects between two steps that a signal has arrived. All ranks of a job stop after the same
/// step, whichever of them received the signal. They synchronize about every 50 ms; the interval is
/// a number of steps, computed from the measured times of the steps.
class StopTogether {
 public:
  /// \param seen   returns the signal that this process has received; 0: none
  /// \param ranks  all ranks of the job, which must outlive this; null: there is only this process
  StopTogether(std::function<int()> seen, executor::CollectiveGroup* ranks)
      : seen_(std::move(seen)), ranks_(ranks) {}

  /// Call after each step, on all ranks. Errors: kDistributed.
  Status after_step();
  /// The signal that ends the run; 0: the run continues.
  [[nodiscard]] int signal() const { return ranks_ == nullptr ? seen_() : agreed_; }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] int64_t wanted_interval() const;

  std::function<int()> seen_;
  executor::CollectiveGroup* ranks_;
  int agreed_ = 0;
  int64_t interval_ = 1;  ///< steps between two synchronizations
  int64_t steps_ = 0;     ///< steps since the last one
  Clock::time_point asked_ = Clock::now();
};

}  // namespace millrace::jobs
