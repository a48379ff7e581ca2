#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ps/transport/transport.h"

namespace millrace::tools {

/// What one server says about itself.
struct ServerAnswer {
  std::string endpoint;
  Status status;      ///< failed: it did not answer
  std::string text;   ///< JSON, as Method::kWatch gives it
  double millis = 0;  ///< until the answer
};

/// Asks all servers at once.
std::vector<ServerAnswer> ask_servers(ps::Transport& transport,
                                      const std::vector<std::string>& endpoints,
                                      std::chrono::milliseconds timeout);

/// A table for people: one row a server, and one a trainer below it. Text that is not what servers
/// say is shown as such, escaped.
std::string status_table(const std::vector<ServerAnswer>& answers);
/// {"servers": [{"endpoint", "answered", "ms", "server" or "error"}]}.
std::string status_json(const std::vector<ServerAnswer>& answers);
/// Ok if all have answered. Errors: kDistributed with the endpoints that have not, a note each.
Status all_answered(const std::vector<ServerAnswer>& answers);

}  // namespace millrace::tools
