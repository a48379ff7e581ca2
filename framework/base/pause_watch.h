#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace millrace {

/// Adds up the time for which a process did not run: it was stopped by a signal, frozen, or its
/// machine was suspended. Code that judges others by their silence must not count that time: the
/// process could not have heard them.
///
/// The process is expected to call tick() at intervals. Where two ticks, or the last tick and now,
/// are further apart than the interval and a tolerance, the rest of the time is a pause. A process
/// that gets no processor for that long counts as paused, too.
/// Not thread-safe. Times are passed in, so that tests need no clock.
class PauseMeter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kInterval{250};
  static constexpr std::chrono::milliseconds kTolerance{250};

  explicit PauseMeter(Clock::time_point now) : last_(now) {}

  void tick(Clock::time_point now) {
    total_ = paused(now);
    last_ = now;
  }
  /// The pauses since the start, including one that is only now noticed.
  [[nodiscard]] Clock::duration paused(Clock::time_point now) const {
    const Clock::duration gap = now - last_;
    return gap > kInterval + kTolerance ? total_ + (gap - kInterval) : total_;
  }

 private:
  Clock::time_point last_;
  Clock::duration total_{0};
};

/// A PauseMeter of this process, with a thread that ticks. Any thread that asks notices a pause at
/// once, even before that thread runs again. Thread-safety: any thread.
class PauseWatch {
 public:
  using Clock = PauseMeter::Clock;

  PauseWatch();
  PauseWatch(const PauseWatch&) = delete;
  PauseWatch& operator=(const PauseWatch&) = delete;
  ~PauseWatch();

  /// How long the process has not run since this object exists.
  [[nodiscard]] Clock::duration paused() const;
  /// The time without pauses: the difference of two of these is how long the process has run in
  /// between. Not comparable with Clock::now().
  [[nodiscard]] Clock::time_point now() const;

  /// Waits as std::condition_variable::wait_until() does, but a deadline does not pass while the
  /// process is paused.
  template <typename Predicate>
  bool wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                  Clock::time_point deadline, Predicate&& holds) const {
    const Clock::duration before = paused();
    for (Clock::time_point limit = deadline;;) {
      if (changed.wait_until(lock, limit, holds)) return true;
      const Clock::time_point later = deadline + (paused() - before);
      if (later <= limit) return false;
      limit = later;
    }
  }

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  PauseMeter meter_;
  std::thread thread_;
};

}  // namespace millrace
