#pragma once

#include <memory>
#include <string>

#include "framework/base/status.h"
#include "ps/metrics/exposer.h"

namespace millrace::tools {

/// Shows the numbers of a process where --metrics says: "PORT" or "127.0.0.1:PORT".
/// \returns null for no port, and for port 0
/// Errors: kUsage for another address or no port; those of MetricsExposer::start().
StatusOr<std::unique_ptr<ps::MetricsExposer>> show_metrics(const std::string& place,
                                                           const ps::Metrics& metrics);

}  // namespace millrace::tools
