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
  static constexpr bool is_steady = true;  // NOLINT(readability-identifier-naming): of any clock

  static time_point now() noexcept {
    timespec time{};
    (void)clock_gettime(CLOCK_BOOTTIME, &time);
    return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};

/// For how long this machine was suspended since it was started. The two clocks are read one after
/// the other, so differences below 100 ms mean nothing.
inline BootClock::duration suspended_time() noexcept {
  return BootClock::now().time_since_epoch() - std::chrono::steady_clock::now().time_since_epoch();
}

}  // namespace millrace
