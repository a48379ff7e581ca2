#include "executor/collective/sockets.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/polled_deadline.h"

namespace millrace::executor {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kBetweenTries = std::chrono::milliseconds(20);
constexpr int kBacklog = 256;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

StatusOr<Addresses> resolve(const std::string& endpoint, bool passive) {
  MILLRACE_ASSIGN_OR_RETURN(const HostPort parts, parse_endpoint(endpoint));
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = passive ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &found)) {
    return Status(StatusCode::kDistributed,
                  fmt::format("cannot resolve {}: {}", endpoint, gai_strerror(error)));
  }
  return Addresses(found);
}

// Looks at the deadline often enough to notice pauses of this process.
Status wait_for(int file, int16_t events, PolledDeadline& deadline) {
  constexpr int64_t kMostPollMs = PauseMeter::kInterval.count();
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline.left()).count();
    pollfd entry{file, events, 0};
    const int count = poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left, 0, kMostPollMs)));
    if (count > 0) return Ok();
    if (count == 0 && left <= 0) return {StatusCode::kDistributed, "the deadline has passed"};
    if (count < 0 && errno != EINTR)
      return {StatusCode::kDistributed, fmt::format("poll failed: {}", std::strerror(errno))};
  }
}

void set_options(int file) {
  const int on = 1;
  setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(file, F_SETFL, fcntl(file, F_GETFL) | O_NONBLOCK);
}

// One attempt to connect to one address.
StatusOr<Socket> try_connect(const addrinfo& address, SocketDeadline until) {
  PolledDeadline deadline(until);
  Socket socket(::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return Status(StatusCode::kDistributed, std::strerror(errno));
  set_options(socket.file());
  if (connect(socket.file(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return Status(StatusCode::kDistributed, std::strerror(errno));
    MILLRACE_RETURN_IF_ERROR(wait_for(socket.file(), POLLOUT, deadline));
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(socket.file(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return Status(StatusCode::kDistributed, std::strerror(error));
  }
  return socket;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    if (file_ >= 0) close(file_);
    file_ = other.release();
  }
  return *this;
}

Socket::~Socket() {
  if (file_ >= 0) close(file_);
}

int Socket::release() {
  const int file = file_;
  file_ = -1;
  return file;
}

StatusOr<HostPort> parse_endpoint(const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  HostPort parts;
  if (colon != std::string::npos) {
    parts.host = endpoint.substr(0, colon);
    parts.port = endpoint.substr(colon + 1);
  }
  if (parts.host.size() > 2 && parts.host.front() == '[' && parts.host.back() == ']')
    parts.host = parts.host.substr(1, parts.host.size() - 2);
  const bool is_number = !parts.port.empty() && parts.port.size() <= 5 &&
                         std::all_of(parts.port.begin(), parts.port.end(),
                                     [](char c) { return c >= '0' && c <= '9'; });
  if (parts.host.empty() || !is_number || std::stoi(parts.port) > 65535)
    return InvalidArgument("expected an endpoint host:port, found '{}'", endpoint);
  return parts;
}

StatusOr<Socket> listen_at(const std::string& endpoint) {
  MILLRACE_ASSIGN_OR_RETURN(const Addresses addresses, resolve(endpoint, /*passive=*/true));
  std::string reason = "no address";
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) {
      reason = std::strerror(errno);
      continue;
    }
    const int on = 1;
    setsockopt(socket.file(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    set_options(socket.file());
    if (bind(socket.file(), at->ai_addr, at->ai_addrlen) == 0 &&
        listen(socket.file(), kBacklog) == 0)
      return socket;
    reason = std::strerror(errno);
  }
  return Status(StatusCode::kResource, fmt::format("cannot listen at {}: {}", endpoint, reason));
}

StatusOr<Socket> connect_to(const std::string& endpoint, SocketDeadline deadline) {
  MILLRACE_RETURN_IF_ERROR(parse_endpoint(endpoint).status());
  std::string reason = "no address";
  do {
    StatusOr<Addresses> addresses = resolve(endpoint, /*passive=*/false);
    if (!addresses.ok()) reason = addresses.status().message();
    for (const addrinfo* at = addresses.ok() ? addresses->get() : nullptr; at != nullptr;
         at = at->ai_next) {
      StatusOr<Socket> socket = try_connect(*at, deadline);
      if (socket.ok()) return socket;
      reason = socket.status().message();
    }
    std::this_thread::sleep_for(kBetweenTries);
  } while (Clock::now() < deadline);
  return Status(StatusCode::kDistributed,
                fmt::format("cannot connect to {}: {}", endpoint, reason));
}

Status write_bytes(const Socket& socket, const std::string& bytes, SocketDeadline until) {
  PolledDeadline deadline(until);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t now =
        ::send(socket.file(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (now > 0) {
      done += static_cast<size_t>(now);
    } else if (now < 0 && (errno == EAGAIN || errno == EINTR)) {
      MILLRACE_RETURN_IF_ERROR(wait_for(socket.file(), POLLOUT, deadline));
    } else {
      return {StatusCode::kDistributed,
              fmt::format("the connection broke: {}", std::strerror(errno))};
    }
  }
  return Ok();
}

Status read_bytes(const Socket& socket, std::string& bytes, size_t count, SocketDeadline until) {
  PolledDeadline deadline(until);
  bytes.resize(count);
  for (size_t done = 0; done < count;) {
    const ssize_t now = ::recv(socket.file(), bytes.data() + done, count - done, 0);
    if (now > 0) {
      done += static_cast<size_t>(now);
    } else if (now == 0) {
      return {StatusCode::kDistributed, "the connection was closed"};
    } else if (errno == EAGAIN || errno == EINTR) {
      MILLRACE_RETURN_IF_ERROR(wait_for(socket.file(), POLLIN, deadline));
    } else {
      return {StatusCode::kDistributed,
              fmt::format("the connection broke: {}", std::strerror(errno))};
    }
  }
  return Ok();
}

}  // namespace millrace::executor
