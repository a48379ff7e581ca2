#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::ps {

/// Names and values that tell series of one metric apart: {{"method", "send"}}.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

/// A number that only grows, or, as a gauge, is set. Thread-safety: all members.
class MetricValue {
 public:
  void add(double amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  [[nodiscard]] double get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

enum class MetricKind { kCounter, kGauge };

/// One series as it stands.
struct MetricSample {
  MetricLabels labels;
  double value = 0;
};

/// One metric with all its series.
struct MetricFamily {
  std::string name;
  std::string help;
  MetricKind kind = MetricKind::kCounter;
  std::vector<MetricSample> samples;  ///< by labels
};

/// The numbers of one process, or of one part of it. What they are called is up to who counts;
/// names follow the rules of Prometheus: millrace_ps_<what>_<unit>, counters end in _total.
/// Thread-safety: all members; values stay valid as long as the object.
class Metrics {
 public:
  Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;
  ~Metrics();

  /// The series, made if it is new. Keep the reference where it is counted often.
  MetricValue& counter(std::string_view name, std::string_view help, MetricLabels labels = {});
  MetricValue& gauge(std::string_view name, std::string_view help, MetricLabels labels = {});

  /// All metrics by name.
  [[nodiscard]] std::vector<MetricFamily> collect() const;
  /// The same in Prometheus' text form.
  [[nodiscard]] std::string text() const;

 private:
  struct Family;
  MetricValue& series(MetricKind kind, std::string_view name, std::string_view help,
                      MetricLabels labels);

  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Family>, std::less<>> families_;
};

/// What a transport knows about a call that it served.
struct ServedCall {
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  bool ok = true;
  double seconds = 0;
};

/// Counts a call under millrace_ps_calls_total, _call_errors_total, _received_bytes_total,
/// _sent_bytes_total and _call_seconds_total, each by method.
void count_call(Metrics& metrics, std::string_view method, const ServedCall& call);

}  // namespace millrace::ps
