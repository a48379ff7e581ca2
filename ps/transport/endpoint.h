#pragma once

#include <string>

#include "framework/base/status.h"

namespace millrace::ps {

/// Host and port of "host:port" or "[v6 address]:port".
struct Endpoint {
  std::string host;  ///< without brackets
  int port = 0;      ///< 0 to 65535
};

/// Errors: kInvalidArgument with the reason.
StatusOr<Endpoint> parse_endpoint(const std::string& text);

/// "host:port", with brackets around v6 addresses.
std::string to_string(const Endpoint& endpoint);

/// True if every address of the host is a loopback address: 127.0.0.0/8 or ::1. Names other than
/// "localhost" are resolved. Errors: kDistributed if the name cannot be resolved.
StatusOr<bool> is_loopback(const Endpoint& endpoint);

/// Determines why listening on a port fails, by trying it. Errors: kDistributed with the port if
/// another process uses it, kDistributed or kIo with the system's reason otherwise.
Status check_port_free(const Endpoint& endpoint);

}  // namespace millrace::ps
