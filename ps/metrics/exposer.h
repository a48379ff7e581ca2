#pragma once

#include <memory>
#include <string>

#include "framework/base/status.h"
#include "ps/metrics/metrics.h"

namespace millrace::ps {

/// Serves metrics by HTTP as long as the object exists: on the loopback interface only, read-only,
/// one request per connection, in five seconds. There are at most 16 connections at a time; the
/// oldest makes room for the next one, so that slow readers cannot block the page.
///
///   /metrics        all metrics, in Prometheus' text format
///   /healthz        200 if the process is live and ready, else 503; the body says which
///   /healthz/live   200 unless the process has failed
///   /healthz/ready  200 while the process takes part in its job
class MetricsExposer {
 public:
  /// \param port     1 to 65535
  /// \param metrics  outlives the object
  /// Errors: kInvalidArgument for other ports; kDistributed if the port is in use; kResource
  /// without a descriptor or thread for it.
  static StatusOr<std::unique_ptr<MetricsExposer>> start(int port, const Metrics& metrics);
  MetricsExposer(const MetricsExposer&) = delete;
  MetricsExposer& operator=(const MetricsExposer&) = delete;
  virtual ~MetricsExposer() = default;

 protected:
  MetricsExposer() = default;
};

}  // namespace millrace::ps
