#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"

namespace millrace::fleet {

/// First and last port of the range from which the system assigns ports to outgoing connections.
struct PortRange {
  int first = 32768;
  int last = 60999;
};

/// Parses "first last", the format of /proc/sys/net/ipv4/ip_local_port_range; returns the default
/// of Linux for malformed text.
PortRange parse_port_range(const std::string& text);

/// Finds `count` different TCP ports on which no process of this machine listens or is connected
/// now, on any address. If possible, they are outside the range of outgoing connections, because a
/// port in that range could be taken before its owner listens. Errors: kResource if there are not
/// that many.
StatusOr<std::vector<int>> free_ports(int count);

/// The same, from these candidates in their order; if they do not suffice, the system chooses the
/// rest.
StatusOr<std::vector<int>> free_ports(int count, const std::vector<int>& candidates);

}  // namespace millrace::fleet
