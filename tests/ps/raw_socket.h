#pragma once

#include <string>
#include <string_view>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ps/transport/endpoint.h"

namespace millrace::ps::test {

/// A plain connection to a loopback endpoint, for peers that behave badly.
class RawSocket {
 public:
  explicit RawSocket(const std::string& endpoint) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const StatusOr<Endpoint> parsed = parse_endpoint(endpoint);
    address.sin_port = htons(static_cast<uint16_t>(parsed.ok() ? parsed->port : 0));
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;
  ~RawSocket() { close(fd_); }

  [[nodiscard]] bool connected() const { return connected_; }
  /// Sends as much as the peer accepts without waiting.
  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
  }
  /// True if the peer closes the connection within the time.
  [[nodiscard]] bool closed_within(int ms) const {
    char buffer[4096];
    for (int waited = 0; waited < ms;) {
      pollfd wait{fd_, POLLIN, 0};
      const int ready = poll(&wait, 1, 50);
      waited += 50;
      if (ready <= 0) continue;
      if (recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT) <= 0) return true;
    }
    return false;
  }

 private:
  int fd_;
  bool connected_ = false;
};

}  // namespace millrace::ps::test
