#include "tools/ps/metrics_page.h"

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

namespace millrace::tools {

StatusOr<std::unique_ptr<ps::MetricsExposer>> show_metrics(const std::string& place,
                                                           const ps::Metrics& metrics) {
  llvm::StringRef rest = place;
  if (rest.contains(':') && !rest.consume_front("127.0.0.1:") && !rest.consume_front("localhost:"))
    return Status(
        StatusCode::kUsage,
        fmt::format("--metrics {}: expected an address on this machine, 127.0.0.1", place));
  int port = 0;
  if (!rest.empty() && (rest.getAsInteger(10, port) || port < 0 || port > 65535))
    return Status(StatusCode::kUsage,
                  fmt::format("--metrics {}: '{}' is not a port", place, rest.str()));
  if (port == 0) return std::unique_ptr<ps::MetricsExposer>();
  return ps::MetricsExposer::start(port, metrics);
}

}  // namespace millrace::tools
