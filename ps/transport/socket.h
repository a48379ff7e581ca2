#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "framework/base/status.h"
#include "ps/transport/codec.h"
#include "ps/transport/endpoint.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// An owned stream socket. Waits are bounded by the time given last with set_deadline(). All errors
/// are kDistributed with the system's words, without the peer's name, which the caller knows.
/// Thread-safety: one user at a time, but shut_down() may be called by another.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket();

  /// Tries every address of the endpoint once. Errors: with the last reason.
  static StatusOr<Socket> connect(const Endpoint& endpoint, Deadline deadline);
  /// A listening socket; no other process may share the port. Errors: that of check_port_free().
  static StatusOr<Socket> listen(const Endpoint& endpoint);

  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  [[nodiscard]] int fd() const { return fd_; }
  /// Gives the socket away.
  int release() { return std::exchange(fd_, -1); }
  /// True if the next bytes are these, once as many have come.
  [[nodiscard]] bool starts_with(std::string_view bytes) const;
  /// The port it is bound to.
  [[nodiscard]] int port() const;
  /// Sends without delay, and notices a silent peer by itself: asked for a sign of life after the
  /// first time, given up after the second.
  void tune(std::chrono::milliseconds keepalive_time, std::chrono::milliseconds keepalive_timeout);
  void set_deadline(Deadline deadline);
  /// A deadline for every single wait instead.
  void set_patience(std::chrono::milliseconds time);
  /// True if nothing has come and the peer is still there.
  [[nodiscard]] bool is_quiet() const;

  Status send(const OutgoingMessage& message);
  /// At least one byte. Zero bytes mean that the peer has ended the connection.
  StatusOr<size_t> receive(std::span<std::byte> into);
  /// Reads one message; `buffer` is for small pieces. False if the peer ended the connection before
  /// its first byte. Errors: those of the reader; kDistributed within a message.
  StatusOr<bool> receive(MessageReader& reader, std::span<std::byte> buffer);
  /// Ends sending and takes what still comes, so that the peer can read the last answer.
  void finish(std::span<std::byte> buffer);
  /// Wakes who waits in another member, with an error.
  void shut_down() const;

 private:
  int fd_ = -1;
  Deadline deadline_ = Deadline::max();
};

}  // namespace millrace::ps
