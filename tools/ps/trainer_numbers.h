#pragma once

#include <cstdint>
#include <string>

#include "ps/metrics/metrics.h"
#include "tools/ps/trainer_stats.h"

namespace millrace::tools {

/// What a trainer tells Prometheus about itself. Thread-safety: one caller at a time.
class TrainerNumbers {
 public:
  /// \param metrics  outlives the object
  TrainerNumbers(ps::Metrics& metrics, int trainer);

  /// A step that is over. \param stats  of all steps
  void count_step(int64_t examples, double seconds, const TrainerStats& stats);
  void show_loss(double loss);

 private:
  ps::MetricValue& steps_;
  ps::MetricValue& examples_;
  ps::MetricHistogram& step_seconds_;
  ps::MetricHistogram& batches_;
  ps::MetricValue& loss_;
  ps::MetricValue& compute_;
  ps::MetricValue& send_;
  ps::MetricValue& wait_;
};

}  // namespace millrace::tools
