#pragma once

#include <memory>
#include <string>

#include "framework/base/status.h"
#include "ps/metrics/metrics.h"

namespace millrace::ps {

/// Shows metrics to Prometheus by HTTP at http://127.0.0.1:<port>/metrics for as long as it lives:
/// loopback only, read only, at most 16 connections, five seconds each.
class MetricsExposer {
 public:
  /// \param port     1 to 65535
  /// \param metrics  outlives the object
  /// Errors: kDistributed if the port is in use; kUnimplemented in a build without prometheus-cpp;
  /// those of load_module() (framework/base/module.h).
  static StatusOr<std::unique_ptr<MetricsExposer>> start(int port, const Metrics& metrics);
  MetricsExposer(const MetricsExposer&) = delete;
  MetricsExposer& operator=(const MetricsExposer&) = delete;
  virtual ~MetricsExposer() = default;

 protected:
  MetricsExposer() = default;
};

/// What the module "prometheus" does.
struct ExposerModule {
  decltype(&MetricsExposer::start) start;
};

}  // namespace millrace::ps
