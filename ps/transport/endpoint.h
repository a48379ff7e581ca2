#pragma once

#include <string>

#include "framework/base/status.h"

namespace millrace::ps {

/// The two halves of "host:port" or "[v6 address]:port".
struct Endpoint {
  std::string host;  ///< without brackets
  int port = 0;      ///< 0 to 65535
};

/// Errors: kInvalidArgument with what is wrong.
StatusOr<Endpoint> parse_endpoint(const std::string& text);

/// "host:port", with brackets around v6 addresses.
std::string to_string(const Endpoint& endpoint);

/// True if every address of the host is one of this machine's loopback: 127.0.0.0/8 or ::1. Names
/// other than "localhost" are looked up. Errors: kDistributed if the name cannot be resolved.
StatusOr<bool> is_loopback(const Endpoint& endpoint);

/// Finds out why a port cannot be listened to, by trying. Errors: kDistributed with the port if
/// somebody else has it, kDistributed or kIo with the system's reason for others.
Status check_port_free(const Endpoint& endpoint);

}  // namespace millrace::ps
