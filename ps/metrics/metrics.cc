#include "ps/metrics/metrics.h"

#include <fmt/format.h>

#include "framework/base/text.h"

namespace millrace::ps {
namespace {

// A label's value between quotation marks.
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
};

Metrics::Metrics() = default;
Metrics::~Metrics() = default;

MetricValue& Metrics::series(MetricKind kind, std::string_view name, std::string_view help,
                             MetricLabels labels) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto at = families_.find(name);
  if (at == families_.end()) {
    at = families_.emplace(std::string(name), std::make_unique<Family>()).first;
    at->second->help = std::string(help);
    at->second->kind = kind;
  }
  return at->second->values[std::move(labels)];
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
      copy.samples.push_back({labels, value.get()});
    out.push_back(std::move(copy));
  }
  return out;
}

std::string Metrics::text() const {
  std::string out;
  for (const MetricFamily& family : collect()) {
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", family.name, printable(family.help),
                       family.name, family.kind == MetricKind::kCounter ? "counter" : "gauge");
    for (const MetricSample& sample : family.samples)
      out += fmt::format("{}{} {}\n", family.name, label_text(sample.labels), sample.value);
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
}

}  // namespace millrace::ps
