#include "ps/metrics/metrics.h"

#include <algorithm>

#include <fmt/format.h>

#include "framework/base/registered_twice.h"
#include "framework/base/text.h"

namespace millrace::ps {
namespace {

// A label's value, escaped for use between quotation marks.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string label_text(const MetricLabels& labels) {
  if (labels.empty()) return "";
  std::string out = "{";
  for (const auto& [name, value] : labels)
    out += fmt::format("{}{}=\"{}\"", out.size() == 1 ? "" : ",", name, escaped(value));
  return out + "}";
}

}  // namespace

struct Metrics::Family {
  std::string help;
  MetricKind kind = MetricKind::kCounter;
  std::map<MetricLabels, MetricValue> values;
  std::map<MetricLabels, MetricHistogram> histograms;
};

MetricHistogram::MetricHistogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void MetricHistogram::observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  counts_[static_cast<size_t>(bucket - bounds_.begin())].fetch_add(1, std::memory_order_relaxed);
  sum_.add(value);
}

std::vector<uint64_t> MetricHistogram::counts() const {
  std::vector<uint64_t> copy;
  for (const auto& count : counts_) copy.push_back(count.load(std::memory_order_relaxed));
  return copy;
}

std::vector<double> time_bounds() {
  return {0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01,
          0.02,    0.05,    0.1,    0.2,    0.5,    1,     2,     5,     10};
}

std::vector<double> size_bounds() {
  std::vector<double> bounds;
  for (double bound = 1; bound <= 16'777'216; bound *= 4) bounds.push_back(bound);
  return bounds;
}

Metrics::Metrics() = default;
Metrics::~Metrics() = default;

Metrics::Family& Metrics::family(MetricKind kind, std::string_view name, std::string_view help) {
  auto at = families_.find(name);
  if (at == families_.end()) {
    at = families_.emplace(std::string(name), std::make_unique<Family>()).first;
    at->second->help = std::string(help);
    at->second->kind = kind;
  }
  if (at->second->kind != kind) abort_registered_twice("metric", name);
  return *at->second;
}

MetricValue& Metrics::series(MetricKind kind, std::string_view name, std::string_view help,
                             MetricLabels labels) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return family(kind, name, help).values[std::move(labels)];
}

MetricHistogram& Metrics::histogram(std::string_view name, std::string_view help,
                                    const std::vector<double>& bounds, MetricLabels labels) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& histograms = family(MetricKind::kHistogram, name, help).histograms;
  return histograms.try_emplace(std::move(labels), bounds).first->second;
}

MetricValue& Metrics::counter(std::string_view name, std::string_view help, MetricLabels labels) {
  return series(MetricKind::kCounter, name, help, std::move(labels));
}

MetricValue& Metrics::gauge(std::string_view name, std::string_view help, MetricLabels labels) {
  return series(MetricKind::kGauge, name, help, std::move(labels));
}

std::vector<MetricFamily> Metrics::collect() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<MetricFamily> out;
  for (const auto& [name, family] : families_) {
    MetricFamily copy{name, family->help, family->kind, {}};
    for (const auto& [labels, value] : family->values)
      copy.samples.push_back({labels, value.get(), {}, {}});
    for (const auto& [labels, histogram] : family->histograms)
      copy.samples.push_back({labels, histogram.sum(), histogram.bounds(), histogram.counts()});
    out.push_back(std::move(copy));
  }
  return out;
}

namespace {

// In the text format, each bucket includes the counts of all smaller buckets.
void put_histogram(const std::string& name, const MetricSample& sample, std::string& out) {
  uint64_t count = 0;
  for (size_t i = 0; i < sample.counts.size(); ++i) {
    count += sample.counts[i];
    MetricLabels labels = sample.labels;
    labels.emplace_back("le",
                        i < sample.bounds.size() ? fmt::format("{}", sample.bounds[i]) : "+Inf");
    out += fmt::format("{}_bucket{} {}\n", name, label_text(labels), count);
  }
  const std::string labels = label_text(sample.labels);
  out += fmt::format("{0}_sum{1} {2}\n{0}_count{1} {3}\n", name, labels, sample.value, count);
}

const char* kind_name(MetricKind kind) {
  return kind == MetricKind::kCounter ? "counter"
         : kind == MetricKind::kGauge ? "gauge"
                                      : "histogram";
}

}  // namespace

std::string Metrics::text() const {
  std::string out;
  for (const MetricFamily& family : collect()) {
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", family.name, printable(family.help),
                       family.name, kind_name(family.kind));
    for (const MetricSample& sample : family.samples) {
      if (family.kind == MetricKind::kHistogram)
        put_histogram(family.name, sample, out);
      else
        out += fmt::format("{}{} {}\n", family.name, label_text(sample.labels), sample.value);
    }
  }
  return out;
}

void count_call(Metrics& metrics, std::string_view method, const ServedCall& call) {
  const MetricLabels labels{{"method", std::string(method)}};
  metrics.counter("millrace_ps_calls_total", "calls that were answered", labels).add(1);
  if (!call.ok)
    metrics.counter("millrace_ps_call_errors_total", "calls answered with an error", labels).add(1);
  metrics.counter("millrace_ps_received_bytes_total", "bytes of calls", labels)
      .add(static_cast<double>(call.bytes_in));
  metrics.counter("millrace_ps_sent_bytes_total", "bytes of answers", labels)
      .add(static_cast<double>(call.bytes_out));
  metrics
      .counter("millrace_ps_call_seconds_total", "time from the first byte to the answer", labels)
      .add(call.seconds);
  metrics
      .histogram("millrace_ps_request_seconds", "time from the first byte to the answer",
                 time_bounds(), labels)
      .observe(call.seconds);
  metrics.histogram("millrace_ps_request_bytes", "bytes of a call", size_bounds(), labels)
      .observe(static_cast<double>(call.bytes_in));
}

}  // namespace millrace::ps
