#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "framework/base/log.h"
#include "framework/base/status.h"
#include "jobs/ps/connection.h"
#include "ps/transport/transport.h"

namespace millrace::jobs {

/// The status response of one server.
struct ServerAnswer {
  std::string endpoint;
  Status status;      ///< failed: it did not respond
  std::string text;   ///< JSON, as Method::kWatch returns it
  double millis = 0;  ///< time until the response
};

/// The addresses of the servers of a job that are registered. Errors: those of open_directory();
/// kDistributed if there are none.
StatusOr<std::vector<std::string>> registered_servers(const Discovery& discovery,
                                                      std::chrono::milliseconds timeout,
                                                      const LogSink& log);

/// Queries all servers concurrently.
std::vector<ServerAnswer> ask_servers(ps::Transport& transport,
                                      const std::vector<std::string>& endpoints,
                                      std::chrono::milliseconds timeout);

/// Ok if all servers responded. Errors: kDistributed with the endpoints that did not, one note
/// each.
Status all_answered(const std::vector<ServerAnswer>& answers);

}  // namespace millrace::jobs
