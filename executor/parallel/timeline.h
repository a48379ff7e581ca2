#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "executor/observer.h"

namespace millrace::executor {

/// Times the ops of several devices, one lane each, exchanges included, in one trace.
/// Thread-safety: a lane belongs to the thread of its device.
class Timeline {
 public:
  explicit Timeline(int devices);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// The observer of a device; lives as long as the timeline.
  [[nodiscard]] OpObserver& lane(int device);

  /// The events as a Chrome trace (chrome://tracing, Perfetto): one thread per device; times in
  /// microseconds since the timeline was created. To be called while no lane is in use.
  [[nodiscard]] std::string chrome_json() const;

  /// Milliseconds that a device has spent in exchanges and shared updates, and in all ops, without
  /// nested ones.
  struct Load {
    double exchange_ms = 0;
    double total_ms = 0;
  };
  [[nodiscard]] Load load(int device) const;

 private:
  class Lane;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace millrace::executor
