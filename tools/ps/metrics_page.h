#pragma once

#include <memory>
#include <string>

#include "framework/base/status.h"
#include "ps/metrics/exposer.h"

namespace millrace::tools {

/// Serves the metrics of a process at the endpoint that --metrics gives: "PORT" or
/// "127.0.0.1:PORT".
/// \returns null for an empty `place` and for port 0
/// Errors: kUsage for another address or an invalid port; those of MetricsExposer::start().
StatusOr<std::unique_ptr<ps::MetricsExposer>> show_metrics(const std::string& place,
                                                           const ps::Metrics& metrics);

}  // namespace millrace::tools
