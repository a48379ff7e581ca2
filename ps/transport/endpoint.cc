#include "ps/transport/endpoint.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::ps {
namespace {

Status Distributed(std::string message) {
  return {StatusCode::kDistributed, std::move(message)};
}

struct EndpointFreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using EndpointAddresses = std::unique_ptr<addrinfo, EndpointFreeAddresses>;

StatusOr<EndpointAddresses> resolve_endpoint(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int problem = getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list);
  if (problem != 0) {
    return Distributed(
        fmt::format("cannot resolve '{}': {}", printable(endpoint.host), gai_strerror(problem)));
  }
  return EndpointAddresses(list);
}

bool is_loopback_address(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof v4);
    return (ntohl(v4.sin_addr.s_addr) >> 24U) == 127;
  }
  if (address.sa_family != AF_INET6) return false;
  sockaddr_in6 v6{};
  std::memcpy(&v6, &address, sizeof v6);
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

Status try_to_bind(const addrinfo& address, const Endpoint& endpoint) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return IoError("cannot create a socket: {}", std::generic_category().message(errno));
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const bool bound = bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, 1) == 0;
  const int reason = errno;
  close(fd);
  if (bound) return Ok();
  if (reason == EADDRINUSE) {
    return Distributed(fmt::format("port {} of {} is in use", endpoint.port, endpoint.host))
        .with_hint("choose another port, or end the process that listens on it");
  }
  return Distributed(fmt::format("cannot listen at {}: {}", to_string(endpoint),
                                 std::generic_category().message(reason)));
}

}  // namespace

StatusOr<Endpoint> parse_endpoint(const std::string& text) {
  const auto bad = [&](std::string_view why) {
    return InvalidArgument("endpoint '{}' {}", printable(text), why)
        .with_hint("write host:port, for example 127.0.0.1:6174");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return bad("has no port");
  Endpoint endpoint{text.substr(0, colon), -1};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, endpoint.port);
  if (error != std::errc() || stop != end || endpoint.port < 0 || endpoint.port > 65535)
    return bad("has no port from 0 to 65535");
  std::string& host = endpoint.host;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return bad("has a colon in its host; write v6 addresses in brackets");
  }
  if (host.empty() || host.size() > 253) return bad("has no host of 1 to 253 characters");
  for (const char c : host) {
    const bool fine = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
    if (!fine) return bad("has a character in its host that is not allowed in host names");
  }
  return endpoint;
}

std::string to_string(const Endpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", endpoint.host, v6 ? "]" : "", endpoint.port);
}

StatusOr<bool> is_loopback(const Endpoint& endpoint) {
  MILLRACE_ASSIGN_OR_RETURN(const EndpointAddresses list, resolve_endpoint(endpoint));
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next)
    if (!is_loopback_address(*at->ai_addr)) return false;
  return true;
}

Status check_port_free(const Endpoint& endpoint) {
  if (endpoint.port == 0) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const EndpointAddresses list, resolve_endpoint(endpoint));
  return try_to_bind(*list, endpoint);
}

}  // namespace millrace::ps
