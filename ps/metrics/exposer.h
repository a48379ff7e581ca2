#pragma once

#include <memory>
#include <string>

#include "framework/base/status.h"
#include "ps/metrics/metrics.h"

namespace millrace::ps {

/// Serves metrics by HTTP as long as the object exists: on the loopback interface only, read-only,
/// at most two requests at a time and five seconds for each.
///
///   /metrics        all metrics, in Prometheus' text format
///   /healthz        200 if the process is live and ready, else 503; the body says which
///   /healthz/live   200 unless the process has failed
///   /healthz/ready  200 while the process takes part in its job
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

/// Entry point of the module "http".
struct ExposerModule {
  decltype(&MetricsExposer::start) start;
};

}  // namespace millrace::ps
