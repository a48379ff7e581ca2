#pragma once

#include <cstdint>
#include <string>

#include "jobs/stats/trainer_stats.h"
#include "ps/metrics/metrics.h"

namespace millrace::jobs {

/// The Prometheus metrics of a trainer. Thread-safety: one caller at a time.
class TrainerNumbers {
 public:
  /// \param metrics  must outlive the object
  TrainerNumbers(ps::Metrics& metrics, int trainer);

  /// Counts a completed step. \param stats  of all steps so far
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

}  // namespace millrace::jobs
