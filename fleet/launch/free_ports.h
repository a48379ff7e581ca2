#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"

namespace millrace::fleet {

/// Ports, first and last, that the system gives to connections whose ends did not ask for one.
struct PortRange {
  int first = 32768;
  int last = 60999;
};

/// Reads "first last", as /proc/sys/net/ipv4/ip_local_port_range has it; the default of Linux where
/// the text is something else.
PortRange parse_port_range(const std::string& text);

/// `count` different TCP ports at which no process of this machine listens or is connected now, on
/// any address. They lie outside the range that the system gives to outgoing connections where
/// there is room: a port of that range could be taken before its owner listens. Errors: kResource
/// where there are not that many.
StatusOr<std::vector<int>> free_ports(int count);

/// The same, of these candidates in their order; where they do not suffice, the system chooses.
StatusOr<std::vector<int>> free_ports(int count, const std::vector<int>& candidates);

}  // namespace millrace::fleet
