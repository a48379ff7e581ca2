#include "tools/common/signal_watch.h"

#include <utility>

#include <pthread.h>
#include <unistd.h>

namespace millrace::tools {

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

void SignalWatch::start(std::function<void()> on_signal) {
  thread_ = std::thread([this, on_signal = std::move(on_signal)] {
    while (true) {
      int signal = 0;
      if (sigwait(&signals_, &signal) != 0 || signal == SIGUSR2) return;
      if (seen_ != 0) ::_exit(128 + signal);
      seen_ = signal;
      stopped_ = true;
      if (on_signal) on_signal();
    }
  });
}

}  // namespace millrace::tools
