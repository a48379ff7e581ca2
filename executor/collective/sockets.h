#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "framework/base/status.h"

namespace millrace::executor {

using SocketDeadline = std::chrono::steady_clock::time_point;

/// An open socket; the destructor closes it.
class Socket {
 public:
  /// \param file  descriptor to own; -1: none
  explicit Socket(int file = -1) : file_(file) {}
  Socket(Socket&& other) noexcept : file_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket();

  /// The descriptor; negative if none is open.
  [[nodiscard]] int file() const { return file_; }
  [[nodiscard]] bool is_open() const { return file_ >= 0; }
  /// Returns the descriptor without closing it; the object owns none afterwards.
  int release();

 private:
  int file_;
};

/// An endpoint, split at its last colon.
struct HostPort {
  std::string host;  ///< name or address, without brackets
  std::string port;  ///< decimal number
};
/// Splits "host:port" or "[::1]:port". Errors: kInvalidArgument.
StatusOr<HostPort> parse_endpoint(const std::string& endpoint);

/// Listens at an address of this machine. Errors: kResource for a port in use or an address of
/// another machine.
StatusOr<Socket> listen_at(const std::string& endpoint);
/// Connects, retrying until the deadline. Errors: kDistributed.
StatusOr<Socket> connect_to(const std::string& endpoint, SocketDeadline deadline);

/// Write and read whole messages. The deadline does not pass while this process is paused during
/// the call. Errors: kDistributed for a closed connection or a passed deadline.
Status write_bytes(const Socket& socket, const std::string& bytes, SocketDeadline until);
Status read_bytes(const Socket& socket, std::string& bytes, size_t count, SocketDeadline until);

}  // namespace millrace::executor
