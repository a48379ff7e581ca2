#include "tools/common/signal_watch.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include <pthread.h>
#include <unistd.h>

namespace millrace::tools {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

// SIGUSR2 makes the thread exit.
SignalWatch::SignalWatch() {
  sigemptyset(&signals_);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR2}) sigaddset(&signals_, signal);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
}

SignalWatch::~SignalWatch() {
  if (thread_.joinable()) {
    pthread_kill(thread_.native_handle(), SIGUSR2);
    thread_.join();
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

// Returns the next signal; 0 if none arrived by then.
int SignalWatch::wait_for_signal(std::optional<Clock::time_point> until) const {
  int number = 0;
  if (!until) return sigwait(&signals_, &number) == 0 ? number : SIGUSR2;
  while (true) {
    const auto left = std::max(Clock::duration::zero(), *until - Clock::now());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec wait{seconds.count(), (left - seconds).count()};
    number = sigtimedwait(&signals_, nullptr, &wait);
    if (number > 0) return number;
    if (errno == EAGAIN) return 0;
    if (errno != EINTR) return SIGUSR2;
  }
}

void SignalWatch::start(std::function<void()> on_signal,
                        std::optional<std::chrono::milliseconds> grace,
                        std::function<void()> late) {
  thread_ = std::thread([this, on_signal = std::move(on_signal), grace, late = std::move(late)] {
    std::optional<Clock::time_point> until;
    while (true) {
      const int signal = wait_for_signal(until);
      if (signal == SIGUSR2) return;
      if (signal == 0 && late) late();
      if (seen_ != 0) ::_exit(exit_code_of(signal == 0 ? seen_.load() : signal));
      seen_ = signal;
      stopped_ = true;
      if (grace) until = Clock::now() + *grace;
      try {
        if (on_signal) on_signal();
      } catch (const std::exception&) {
        ::_exit(exit_code_of(signal));  // no memory to end in order
      }
    }
  });
}

}  // namespace millrace::tools
