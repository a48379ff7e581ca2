#include "ps/transport/socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::ps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPiecesAtOnce = 256;  // below the system's limit of 1024

Status Lost(std::string message) {
  return {StatusCode::kDistributed, std::move(message)};
}

std::string reason(int code) {
  return std::generic_category().message(code);
}

void set_option(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

struct SocketFreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using SocketAddresses = std::unique_ptr<addrinfo, SocketFreeAddresses>;

StatusOr<SocketAddresses> resolve_socket(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int problem = getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list);
  if (problem == 0) return SocketAddresses(list);
  return Lost(
      fmt::format("cannot resolve '{}': {}", printable(endpoint.host), gai_strerror(problem)));
}

int milliseconds_until(Deadline deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left + 1, 0, 3600000));
}

// The error of a connection attempt; 0 on success.
int try_connect(int fd, const addrinfo& address, Deadline deadline) {
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd wait{fd, POLLOUT, 0};
  if (poll(&wait, 1, milliseconds_until(deadline)) <= 0) return ETIMEDOUT;
  int problem = 0;
  socklen_t length = sizeof problem;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &length);
  return problem;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

StatusOr<Socket> Socket::connect(const Endpoint& endpoint, Deadline deadline) {
  MILLRACE_ASSIGN_OR_RETURN(const SocketAddresses list, resolve_socket(endpoint, 0));
  int problem = EADDRNOTAVAIL;
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.is_open()) return Lost(reason(errno));
    problem = try_connect(socket.fd_, *at, deadline);
    if (problem != 0) continue;
    // From here on, the socket's timeouts bound the waits; see set_deadline().
    const int flags = fcntl(socket.fd_, F_GETFL, 0);
    fcntl(socket.fd_, F_SETFL, flags & ~O_NONBLOCK);
    return socket;
  }
  return Lost(reason(problem));
}

StatusOr<Socket> Socket::listen(const Endpoint& endpoint) {
  MILLRACE_ASSIGN_OR_RETURN(const SocketAddresses list, resolve_socket(endpoint, AI_PASSIVE));
  Socket socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return Lost(reason(errno));
  set_option(socket.fd_, SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(socket.fd_, list->ai_addr, list->ai_addrlen) == 0 && ::listen(socket.fd_, 512) == 0)
    return socket;
  const int problem = errno;
  MILLRACE_RETURN_IF_ERROR(check_port_free(endpoint));
  return Lost(fmt::format("cannot listen at {}: {}", to_string(endpoint), reason(problem)));
}

int Socket::port() const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  const in_port_t port = address.ss_family == AF_INET6
                             ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                             : reinterpret_cast<const sockaddr_in&>(address).sin_port;
  return ntohs(port);
}

void Socket::tune(std::chrono::milliseconds keepalive_time,
                  std::chrono::milliseconds keepalive_timeout) {
  const auto seconds = [](std::chrono::milliseconds time) {
    return std::max(1, static_cast<int>(time.count() / 1000));
  };
  set_option(fd_, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd_, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd_, IPPROTO_TCP, TCP_KEEPIDLE, seconds(keepalive_time));
  set_option(fd_, IPPROTO_TCP, TCP_KEEPINTVL, seconds(keepalive_timeout));
  set_option(fd_, IPPROTO_TCP, TCP_KEEPCNT, 1);
  set_option(fd_, IPPROTO_TCP, TCP_USER_TIMEOUT,
             static_cast<int>((keepalive_time + keepalive_timeout).count()));
}

void Socket::set_deadline(Deadline deadline) {
  set_patience(std::chrono::milliseconds(std::max(1, milliseconds_until(deadline))));
  deadline_ = deadline;
}

void Socket::set_patience(std::chrono::milliseconds time) {
  deadline_ = Deadline::max();
  const timeval wait{time.count() / 1000, (time.count() % 1000) * 1000};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
}

void Socket::set_floor(uint64_t bytes_per_second, std::chrono::milliseconds grace) {
  floor_ = bytes_per_second;
  floor_grace_ = grace;
}

bool Socket::is_too_slow(Deadline begin, uint64_t bytes) const {
  const auto late = std::chrono::duration<double>(Clock::now() - begin - floor_grace_).count();
  return late > 0 && static_cast<double>(bytes) < static_cast<double>(floor_) * late;
}

bool Socket::is_quiet() const {
  char byte = 0;
  return recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EWOULDBLOCK);
}

bool Socket::starts_with(std::string_view bytes) const {
  std::string got(bytes.size(), '\0');
  const ssize_t count = recv(fd_, got.data(), got.size(), MSG_PEEK | MSG_WAITALL);
  return count == static_cast<ssize_t>(bytes.size()) && got == bytes;
}

Status Socket::send(const OutgoingMessage& message) {
  std::vector<iovec> pieces;
  pieces.reserve(message.payload.size() + 1);
  pieces.push_back({const_cast<char*>(message.head.data()), message.head.size()});
  for (const std::span<const std::byte> piece : message.payload)
    pieces.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
  const auto begin = Clock::now();
  uint64_t total = 0;
  for (size_t at = 0; at < pieces.size();) {
    msghdr header{};
    header.msg_iov = &pieces[at];
    header.msg_iovlen = std::min(pieces.size() - at, kPiecesAtOnce);
    ssize_t sent = sendmsg(fd_, &header, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return Lost("timed out because the peer does not receive");
    if (sent < 0) return Lost(reason(errno));
    if (Clock::now() > deadline_) return Lost("the deadline passed while sending");
    total += static_cast<uint64_t>(sent);
    if (is_too_slow(begin, total)) return Lost("the peer receives too slowly");
    for (; at < pieces.size() && static_cast<size_t>(sent) >= pieces[at].iov_len; ++at)
      sent -= static_cast<ssize_t>(pieces[at].iov_len);
    if (at == pieces.size()) break;
    pieces[at].iov_base = static_cast<char*>(pieces[at].iov_base) + sent;
    pieces[at].iov_len -= static_cast<size_t>(sent);
  }
  return Ok();
}

StatusOr<size_t> Socket::receive(std::span<std::byte> into) {
  for (;;) {
    const ssize_t got = recv(fd_, into.data(), into.size(), 0);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Lost("nothing was received in time");
    return Lost(reason(errno));
  }
}

StatusOr<bool> Socket::receive(MessageReader& reader, std::span<std::byte> buffer) {
  const auto begin = Clock::now();
  while (!reader.done()) {
    const std::span<std::byte> space = reader.space();
    const bool direct = space.size() >= buffer.size();
    MILLRACE_ASSIGN_OR_RETURN(const size_t count, receive(direct ? space : buffer));
    if (count == 0) {
      if (reader.received_bytes() == 0) return false;
      return Lost("the connection ended within a message");
    }
    MILLRACE_RETURN_IF_ERROR(direct ? reader.filled(count) : reader.feed(buffer.first(count)));
    if (Clock::now() > deadline_) return Lost("the deadline passed while receiving");
    if (is_too_slow(begin, reader.received_bytes())) return Lost("the peer sends too slowly");
  }
  return true;
}

void Socket::finish(std::span<std::byte> buffer) {
  shutdown(fd_, SHUT_WR);
  const auto until = Clock::now() + std::chrono::seconds(2);
  set_patience(std::chrono::milliseconds(500));
  while (Clock::now() < until) {
    const StatusOr<size_t> count = receive(buffer);
    if (!count.ok() || *count == 0) return;
  }
}

void Socket::shut_down() const {
  shutdown(fd_, SHUT_RDWR);
}

}  // namespace millrace::ps
