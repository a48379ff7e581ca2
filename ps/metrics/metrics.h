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

/// Label names and values that distinguish the series of one metric: {{"method", "send"}}.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

/// A counter, which only increases, or a gauge, which is set. Thread-safety: all members.
class MetricValue {
 public:
  void add(double amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  [[nodiscard]] double get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

/// A histogram: counts of observed values by bucket. Thread-safety: all members.
class MetricHistogram {
 public:
  /// \param bounds  upper bounds of the buckets, ascending; a last bucket has no bound
  explicit MetricHistogram(std::vector<double> bounds);
  void observe(double value);

  [[nodiscard]] const std::vector<double>& bounds() const { return bounds_; }
  /// Count of each bucket, not including smaller buckets; one more than bounds.
  [[nodiscard]] std::vector<uint64_t> counts() const;
  [[nodiscard]] double sum() const { return sum_.get(); }

 private:
  std::vector<double> bounds_;
  std::vector<std::atomic<uint64_t>> counts_;
  MetricValue sum_;
};

/// Bucket bounds for times in seconds (20 us to 10 s), and for sizes (1 to 16 million, each four
/// times the previous one).
std::vector<double> time_bounds();
std::vector<double> size_bounds();

/// Health of a process: live (it has not failed) and ready (it takes part in its job).
/// Thread-safety: all members.
struct Health {
  std::atomic<bool> live{true};
  std::atomic<bool> ready{false};
};

enum class MetricKind { kCounter, kGauge, kHistogram };

/// The current state of one series.
struct MetricSample {
  MetricLabels labels;
  double value = 0;  ///< for a histogram: the sum
  std::vector<double> bounds;
  std::vector<uint64_t> counts;  ///< MetricHistogram::counts()
};

/// One metric with all its series.
struct MetricFamily {
  std::string name;
  std::string help;
  MetricKind kind = MetricKind::kCounter;
  std::vector<MetricSample> samples;  ///< by labels
};

/// The metrics of one process, or of one component. The code that counts chooses the names, by the
/// rules of Prometheus: millrace_ps_<what>_<unit>; names of counters end in _total. A name that is
/// used for two kinds of metric aborts, which is a bug of the caller.
/// Thread-safety: all members; references stay valid as long as the object.
class Metrics {
 public:
  Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;
  ~Metrics();

  /// Returns the series; creates it if it is new. Callers that count often should keep the
  /// reference.
  MetricValue& counter(std::string_view name, std::string_view help, MetricLabels labels = {});
  MetricValue& gauge(std::string_view name, std::string_view help, MetricLabels labels = {});

  /// \param bounds  bucket bounds, used if the series is new
  MetricHistogram& histogram(std::string_view name, std::string_view help,
                             const std::vector<double>& bounds, MetricLabels labels = {});
  [[nodiscard]] Health& health() { return health_; }
  [[nodiscard]] const Health& health() const { return health_; }

  /// All metrics, ordered by name.
  [[nodiscard]] std::vector<MetricFamily> collect() const;
  /// The same in Prometheus' text format.
  [[nodiscard]] std::string text() const;

 private:
  struct Family;
  Family& family(MetricKind kind, std::string_view name, std::string_view help);
  MetricValue& series(MetricKind kind, std::string_view name, std::string_view help,
                      MetricLabels labels);

  Health health_;
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Family>, std::less<>> families_;
};

/// What a transport knows of a call that it served.
struct ServedCall {
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  bool ok = true;
  double seconds = 0;
};

/// Counts a call under millrace_ps_calls_total, _call_errors_total, _received_bytes_total,
/// _sent_bytes_total and _call_seconds_total, and in the histograms _request_seconds and
/// _request_bytes, each by method.
void count_call(Metrics& metrics, std::string_view method, const ServedCall& call);

}  // namespace millrace::ps
