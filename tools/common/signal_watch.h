#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include <signal.h>

namespace millrace::tools {

/// Waits for SIGTERM and SIGINT in a thread of its own, so that no work is done in a handler. To be
/// made before other threads, which inherit the mask.
class SignalWatch {
 public:
  SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch();

  /// Begins to wait. \param on_signal  called once, in the thread; a second signal ends the process
  /// at once with its exit code. May be null.
  void start(std::function<void()> on_signal);
  /// The signal that has come; 0: none. Any thread.
  [[nodiscard]] int seen() const { return seen_; }
  /// True from the signal on, for those who look now and then.
  [[nodiscard]] const std::atomic<bool>& stopped() const { return stopped_; }
  /// 128 and the signal's number.
  [[nodiscard]] int exit_code() const { return 128 + seen_; }

 private:
  sigset_t signals_{};
  sigset_t before_{};
  std::atomic<int> seen_{0};
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

}  // namespace millrace::tools
