#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ps/transport/transport.h"

namespace millrace::tools {

/// The status response of one server.
struct ServerAnswer {
  std::string endpoint;
  Status status;      ///< failed: it did not respond
  std::string text;   ///< JSON, as Method::kWatch returns it
  double millis = 0;  ///< time until the response
};

/// Queries all servers concurrently.
std::vector<ServerAnswer> ask_servers(ps::Transport& transport,
                                      const std::vector<std::string>& endpoints,
                                      std::chrono::milliseconds timeout);

/// A table with one row per server, and below it one row per trainer. Text that is not a valid
/// status is shown as it is, escaped.
std::string status_table(const std::vector<ServerAnswer>& answers);
/// {"servers": [{"endpoint", "answered", "ms", "server" or "error"}]}.
std::string status_json(const std::vector<ServerAnswer>& answers);
/// Ok if all servers responded. Errors: kDistributed with the endpoints that did not, one note
/// each.
Status all_answered(const std::vector<ServerAnswer>& answers);

}  // namespace millrace::tools
