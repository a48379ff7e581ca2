#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "framework/base/status.h"

namespace millrace::fleet {

/// How long to wait for servers, and how to report progress.
struct WaitOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(2);
  std::chrono::milliseconds pause = std::chrono::seconds(3);
  /// Called after every attempt with the servers that do not respond yet. May be empty.
  std::function<void(const std::vector<std::string>& pending)> on_pending;
};

/// Waits until every endpoint accepts a TCP connection. The original waits without limit.
/// Errors: kInvalidArgument for a malformed endpoint; kDistributed at the timeout, naming the
/// servers that do not respond. Source: spec/fleet.md section 2.
Status wait_server_ready(const std::vector<std::string>& endpoints,
                         const WaitOptions& options = {});

}  // namespace millrace::fleet
