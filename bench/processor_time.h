#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <vector>

#include <sys/types.h>

namespace millrace::bench {

/// Processor time of this process and of others on the same machine. Unlike wall time it is
/// meaningful while other programs keep the processor busy.
class ProcessorTime {
 public:
  /// \param others  running processes that this process may look at, as its children
  explicit ProcessorTime(const std::vector<pid_t>& others) : clocks_{CLOCK_PROCESS_CPUTIME_ID} {
    for (const pid_t each : others) {
      clockid_t clock = 0;
      if (clock_getcpuclockid(each, &clock) == 0) clocks_.push_back(clock);
    }
  }
  /// Seconds of all these processes since they started.
  [[nodiscard]] double seconds() const {
    double sum = 0;
    for (const clockid_t clock : clocks_) {
      timespec time{};
      if (clock_gettime(clock, &time) == 0)
        sum += static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    }
    return sum;
  }

 private:
  std::vector<clockid_t> clocks_;
};

/// What one of several runs took, in seconds.
struct RunTimes {
  double median = 0;
  double best = 0;
  double processor = 0;  ///< mean of the processor time
};

/// Runs the body that often.
inline RunTimes time_runs(int runs, const ProcessorTime& processor,
                          const std::function<void()>& body) {
  std::vector<double> seconds;
  const double used = processor.seconds();
  for (int i = 0; i < runs; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  const double mean = (processor.seconds() - used) / runs;
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front(), mean};
}

}  // namespace millrace::bench
