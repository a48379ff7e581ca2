#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "framework/base/status.h"
#include "ps/transport/codec.h"
#include "ps/transport/endpoint.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

/// An owned stream socket. Waits are bounded by the deadline last set with set_deadline(). All
/// errors are kDistributed with the system's reason, without the name of the peer.
/// Thread-safety: one thread at a time, but another thread may call shut_down().
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept { *this = std::move(other); }
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(deadline_, other.deadline_);
    std::swap(floor_, other.floor_);
    std::swap(floor_grace_, other.floor_grace_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket();

  /// Tries every address of the endpoint once. Errors: the reason of the last attempt.
  static StatusOr<Socket> connect(const Endpoint& endpoint, Deadline deadline);
  /// A listening socket; no other process can share the port. Errors: that of check_port_free().
  static StatusOr<Socket> listen(const Endpoint& endpoint);

  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  [[nodiscard]] int fd() const { return fd_; }
  /// Releases ownership of the descriptor.
  int release() { return std::exchange(fd_, -1); }
  /// True if the next bytes received are these; waits until enough bytes have arrived.
  [[nodiscard]] bool starts_with(std::string_view bytes) const;
  /// The port it is bound to.
  [[nodiscard]] int port() const;
  /// Disables send delays (Nagle's algorithm), and enables keep-alive: a silent peer is probed
  /// after keepalive_time and given up after keepalive_timeout.
  void tune(std::chrono::milliseconds keepalive_time, std::chrono::milliseconds keepalive_timeout);
  void set_deadline(Deadline deadline);
  /// Limits every single wait, instead of a deadline.
  void set_patience(std::chrono::milliseconds time);
  /// Ends messages of peers that are too slow: one that takes longer than `grace` fails once it has
  /// had less than that many bytes for each second after the grace. 0: no limit.
  void set_floor(uint64_t bytes_per_second, std::chrono::milliseconds grace);
  /// True if no bytes have arrived and the peer is still connected.
  [[nodiscard]] bool is_quiet() const;

  Status send(const OutgoingMessage& message);
  /// Receives at least one byte. Zero bytes mean that the peer has closed the connection.
  StatusOr<size_t> receive(std::span<std::byte> into);
  /// Reads one message; `buffer` is for small pieces. False if the peer closed the connection
  /// before the first byte. Errors: those of the reader; kDistributed within a message.
  StatusOr<bool> receive(MessageReader& reader, std::span<std::byte> buffer);
  /// Ends sending and discards what still arrives, so that the peer can read the last response.
  void finish(std::span<std::byte> buffer);
  /// Wakes threads that wait in other members, with an error.
  void shut_down() const;

 private:
  [[nodiscard]] bool is_too_slow(Deadline begin, uint64_t bytes) const;

  int fd_ = -1;
  Deadline deadline_ = Deadline::max();
  uint64_t floor_ = 0;
  std::chrono::milliseconds floor_grace_{0};
};

}  // namespace millrace::ps
