#include "ps/metrics/exposer.h"

#include <exception>
#include <utility>
#include <vector>

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include "framework/base/errors.h"
#include "framework/base/module.h"
#include "ps/transport/endpoint.h"

namespace millrace::ps {
namespace {

// The metrics in the words of the library.
class Collected final : public prometheus::Collectable {
 public:
  explicit Collected(const Metrics& metrics) : metrics_(metrics) {}

  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> out;
    for (const MetricFamily& family : metrics_.collect()) {
      const bool counter = family.kind == MetricKind::kCounter;
      prometheus::MetricFamily to{
          family.name,
          family.help,
          counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge,
          {}};
      for (const MetricSample& sample : family.samples) {
        prometheus::ClientMetric metric;
        for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
        (counter ? metric.counter.value : metric.gauge.value) = sample.value;
        to.metric.push_back(std::move(metric));
      }
      out.push_back(std::move(to));
    }
    return out;
  }

 private:
  const Metrics& metrics_;
};

class Exposed final : public MetricsExposer {
 public:
  Exposed(int port, const Metrics& metrics)
      : collected_(std::make_shared<Collected>(metrics)),
        exposer_(std::vector<std::string>{"listening_ports", fmt::format("127.0.0.1:{}", port),
                                          "num_threads", "2", "connection_queue", "14",
                                          "request_timeout_ms", "5000", "keep_alive_timeout_ms",
                                          "500", "enable_keep_alive", "no"}) {
    exposer_.RegisterCollectable(collected_);
  }

 private:
  std::shared_ptr<Collected> collected_;
  prometheus::Exposer exposer_;
};

StatusOr<std::unique_ptr<MetricsExposer>> start(int port, const Metrics& metrics) {
  if (port < 1 || port > 65535)
    return InvalidArgument("port {} for metrics, expected 1 to 65535", port);
  MILLRACE_RETURN_IF_ERROR(check_port_free({"127.0.0.1", port}));
  try {
    return std::unique_ptr<MetricsExposer>(std::make_unique<Exposed>(port, metrics));
  } catch (const std::exception& error) {
    return Status(StatusCode::kDistributed,
                  fmt::format("cannot show metrics at port {}: {}", port, error.what()));
  }
}

constexpr ExposerModule kModule{&start};

}  // namespace
}  // namespace millrace::ps

extern "C" const char* millrace_module(const void** functions) {
  *functions = &millrace::ps::kModule;
  return millrace::build_stamp();
}
