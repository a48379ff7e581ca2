#pragma once

#include <cstdint>
#include <optional>

namespace millrace::jobs {

/// The progress of a training run.
struct ProgressState {
  int64_t epoch = 0;  ///< from 1
  int64_t epochs = 0;
  int64_t step = 0;   ///< of the whole run, from 1
  int64_t steps = 0;  ///< 0: unknown
  std::optional<double> loss;
  int64_t examples = 0;  ///< number of examples so far
};

/// Receives the progress of a run. Thread-safety: one caller at a time.
class ProgressSink {
 public:
  ProgressSink() = default;
  ProgressSink(const ProgressSink&) = delete;
  ProgressSink& operator=(const ProgressSink&) = delete;
  virtual ~ProgressSink() = default;

  /// Called before the first step.
  virtual void begin() = 0;
  /// Called after each step.
  virtual void update(const ProgressState& state) = 0;
  /// Called after the last step.
  virtual void finish(const ProgressState& state) = 0;
};

}  // namespace millrace::jobs
