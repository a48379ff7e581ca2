#include "fleet/launch/free_ports.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace millrace::fleet {
namespace {

constexpr int kLowestPort = 10000;  // those below belong to well-known services
constexpr int kHighestPort = 65535;

// Sockets that occupy their ports until all are found, so that the ports differ.
class HeldPorts {
 public:
  HeldPorts() = default;
  HeldPorts(const HeldPorts&) = delete;
  HeldPorts& operator=(const HeldPorts&) = delete;
  ~HeldPorts() {
    for (const int file : files_) close(file);
  }

  // Port 0: the system chooses one.
  bool hold(int port) {
    const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file < 0) return false;
    files_.push_back(file);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(static_cast<uint16_t>(port));
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(file, generic, size) != 0 || getsockname(file, generic, &size) != 0) {
      close(file);
      files_.pop_back();
      return false;
    }
    ports_.push_back(ntohs(address.sin_port));
    return true;
  }
  [[nodiscard]] const std::vector<int>& ports() const { return ports_; }

 private:
  std::vector<int> files_;
  std::vector<int> ports_;
};

std::string system_port_range() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  return {std::istreambuf_iterator<char>(file), {}};
}

// Starts at a random port, so that two concurrent launchers are unlikely to try the same ports.
std::vector<int> ports_from_anywhere() {
  const PortRange given = parse_port_range(system_port_range());
  std::vector<int> list;
  for (int port = kLowestPort; port <= kHighestPort; ++port)
    if (port < given.first || port > given.last) list.push_back(port);
  if (list.empty()) return list;
  std::uniform_int_distribution<size_t> draw(0, list.size() - 1);
  std::random_device entropy;
  std::rotate(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(draw(entropy)), list.end());
  return list;
}

}  // namespace

PortRange parse_port_range(const std::string& text) {
  std::istringstream words(text);
  PortRange range;
  if (words >> range.first >> range.last && range.first > 0 && range.first <= range.last &&
      range.last <= kHighestPort)
    return range;
  return {};
}

StatusOr<std::vector<int>> free_ports(int count) {
  return free_ports(count, ports_from_anywhere());
}

StatusOr<std::vector<int>> free_ports(int count, const std::vector<int>& candidates) {
  HeldPorts held;
  const auto wanted = static_cast<size_t>(count);
  for (const int port : candidates) {
    if (held.ports().size() == wanted) break;
    held.hold(port);
  }
  while (held.ports().size() < wanted && held.hold(0)) {
  }
  if (held.ports().size() == wanted) return held.ports();
  return Status(StatusCode::kResource, fmt::format("cannot find {} free ports", count));
}

}  // namespace millrace::fleet
