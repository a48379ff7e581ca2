#include "jobs/stats/trainer_numbers.h"

#include <utility>

namespace millrace::jobs {
namespace {

ps::MetricLabels labels_of(int trainer, const char* name = nullptr, const char* value = nullptr) {
  ps::MetricLabels labels{{"role", "trainer"}, {"rank", std::to_string(trainer)}};
  if (name != nullptr) labels.emplace_back(name, value);
  return labels;
}

ps::MetricValue& time_of(ps::Metrics& metrics, int trainer, const char* part) {
  return metrics.counter("millrace_trainer_seconds_total", "time of steps by activity",
                         labels_of(trainer, "part", part));
}

}  // namespace

TrainerNumbers::TrainerNumbers(ps::Metrics& metrics, int trainer)
    : steps_(metrics.counter("millrace_step_total", "steps that were applied", labels_of(trainer))),
      examples_(metrics.counter("millrace_examples_total", "examples of those steps",
                                labels_of(trainer))),
      step_seconds_(metrics.histogram("millrace_step_seconds", "time of a step", ps::time_bounds(),
                                      labels_of(trainer))),
      batches_(metrics.histogram("millrace_batch_examples", "examples of a step", ps::size_bounds(),
                                 labels_of(trainer))),
      loss_(metrics.gauge("millrace_loss", "value of the first fetch, if it is one number",
                          labels_of(trainer))),
      compute_(time_of(metrics, trainer, "compute")),
      send_(time_of(metrics, trainer, "send")),
      wait_(time_of(metrics, trainer, "wait")) {}

void TrainerNumbers::count_step(int64_t examples, double seconds, const TrainerStats& stats) {
  steps_.add(1);
  examples_.add(static_cast<double>(examples));
  step_seconds_.observe(seconds);
  batches_.observe(static_cast<double>(examples));
  compute_.set(stats.compute_seconds);
  send_.set(stats.send_seconds);
  wait_.set(stats.wait_seconds);
}

void TrainerNumbers::show_loss(double loss) {
  loss_.set(loss);
}

}  // namespace millrace::jobs
