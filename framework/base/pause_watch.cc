#include "framework/base/pause_watch.h"

namespace millrace {

PauseWatch::PauseWatch() : meter_(Clock::now()), thread_([this] { run(); }) {}

PauseWatch::~PauseWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void PauseWatch::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, PauseMeter::kInterval, [this] { return stop_; }))
    meter_.tick(Clock::now());
}

PauseWatch::Clock::duration PauseWatch::paused() const {
  const std::lock_guard lock(mutex_);
  return meter_.paused(Clock::now());
}

PauseWatch::Clock::time_point PauseWatch::now() const {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  return now - meter_.paused(now);
}

}  // namespace millrace
