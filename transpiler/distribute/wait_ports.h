#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/status.h"

namespace millrace::transpiler {

/// Waits until every endpoint ("host:port") accepts a TCP connection; closes each connection
/// immediately.
///
/// \param deadline_ms  for all endpoints together, on the monotonic clock
/// Errors: kDistributed naming the endpoints that did not accept a connection and the last error of
/// each.
Status wait_ports(const std::vector<std::string>& endpoints, int64_t deadline_ms);

}  // namespace millrace::transpiler
