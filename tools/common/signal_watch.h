#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include <signal.h>

namespace millrace::tools {

/// Waits for SIGTERM and SIGINT in a separate thread, so that no work is done in a signal handler.
/// Must be created before other threads, because they inherit its signal mask.
class SignalWatch {
 public:
  SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch();

  /// Starts waiting. \param on_signal  called once, in that thread; a second signal ends the
  /// process at once with its exit code. May be null.
  /// \param grace  if given, the process ends with that exit code this long after the first signal
  ///               unless the object is destroyed before; `late` is called then
  void start(std::function<void()> on_signal,
             std::optional<std::chrono::milliseconds> grace = std::nullopt,
             std::function<void()> late = {});
  /// The signal that was received; 0: none. Thread-safe.
  [[nodiscard]] int seen() const { return seen_; }
  /// True once a signal was received, for code that polls.
  [[nodiscard]] const std::atomic<bool>& stopped() const { return stopped_; }
  /// 128 plus the number of the signal.
  [[nodiscard]] int exit_code() const { return exit_code_of(seen_); }
  static int exit_code_of(int signal) { return 128 + signal; }

 private:
  int wait_for_signal(std::optional<std::chrono::steady_clock::time_point> until) const;

  sigset_t signals_{};
  sigset_t before_{};
  std::atomic<int> seen_{0};
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

}  // namespace millrace::tools
