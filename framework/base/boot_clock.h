#pragma once

#include <chrono>

#include <time.h>

namespace millrace {

/// The time since the machine was started, also while it was suspended: std::chrono::steady_clock
/// stands still then. For periods that other machines measure, such as the lease of a directory. It
/// is read as fast as steady_clock. Thread-safety: any thread.
struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;

  static time_point now() noexcept {
    timespec time{};
    (void)clock_gettime(CLOCK_BOOTTIME, &time);
    return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};

}  // namespace millrace
