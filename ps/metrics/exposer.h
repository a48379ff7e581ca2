#pragma once

#include <memory>
#include <string>

#include "framework/base/status.h"
#include "ps/metrics/metrics.h"

namespace millrace::ps {

/// Shows metrics by HTTP for as long as it lives: loopback only, read only, two requests at a time,
/// five seconds each.
///
///   /metrics        all numbers, for Prometheus
///   /healthz        200 if the process works and is ready, else 503; the answer says which
///   /healthz/live   200 unless it has failed
///   /healthz/ready  200 while it takes part in its job
class MetricsExposer {
 public:
  /// \param port     1 to 65535
  /// \param metrics  outlives the object
  /// Errors: kInvalidArgument for other ports; kDistributed if the port is in use; kUnimplemented
  /// in a build without cpp-httplib; those of load_module() (framework/base/module.h).
  static StatusOr<std::unique_ptr<MetricsExposer>> start(int port, const Metrics& metrics);
  MetricsExposer(const MetricsExposer&) = delete;
  MetricsExposer& operator=(const MetricsExposer&) = delete;
  virtual ~MetricsExposer() = default;

 protected:
  MetricsExposer() = default;
};

/// What the module "http" does.
struct ExposerModule {
  decltype(&MetricsExposer::start) start;
};

}  // namespace millrace::ps
