#pragma once

#include <chrono>

#include "framework/base/pause_watch.h"

namespace millrace {

/// A deadline of a loop that asks for it at least every PauseMeter::kInterval. It does not pass
/// while the process is paused, so the process does not blame others for its own pauses.
/// Not thread-safe.
class PolledDeadline {
 public:
  using Clock = PauseMeter::Clock;

  explicit PolledDeadline(Clock::time_point deadline) : meter_(Clock::now()), deadline_(deadline) {}
  explicit PolledDeadline(std::chrono::milliseconds time) : PolledDeadline(Clock::now() + time) {}

  /// How long the loop may still wait, without the pauses so far; not positive when the deadline
  /// has passed.
  [[nodiscard]] Clock::duration left() {
    const Clock::time_point now = Clock::now();
    meter_.tick(now);
    return deadline_ + meter_.paused(now) - now;
  }
  [[nodiscard]] bool has_passed() { return left() <= Clock::duration(0); }

 private:
  PauseMeter meter_;
  Clock::time_point deadline_;
};

}  // namespace millrace
