#include "fleet/roles/wait_servers.h"

#include <thread>

#include <fmt/format.h>

#include "fleet/launch/job_environment.h"
#include "framework/base/errors.h"
#include "ps/transport/endpoint.h"
#include "ps/transport/socket.h"

namespace millrace::fleet {

Status wait_server_ready(const std::vector<std::string>& endpoints, const WaitOptions& options) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + options.timeout;
  std::vector<std::string> pending = endpoints;
  while (true) {
    std::vector<std::string> silent;
    for (const std::string& text : pending) {
      MILLRACE_ASSIGN_OR_RETURN(const ps::Endpoint endpoint, ps::parse_endpoint(text));
      const Clock::time_point limit = std::min(end, Clock::now() + options.connect_timeout);
      if (!ps::Socket::connect(endpoint, limit).ok()) silent.push_back(text);
    }
    pending = std::move(silent);
    if (pending.empty()) return Ok();
    if (options.on_pending) options.on_pending(pending);
    if (Clock::now() + options.pause >= end)
      return {StatusCode::kDistributed, fmt::format("servers do not answer within {} ms: {}",
                                                    options.timeout.count(), join_list(pending))};
    std::this_thread::sleep_for(options.pause);
  }
}

}  // namespace millrace::fleet
