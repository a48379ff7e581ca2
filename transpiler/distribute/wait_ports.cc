#include "transpiler/distribute/wait_ports.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "framework/base/errors.h"

namespace millrace::transpiler {
namespace {

using Clock = std::chrono::steady_clock;

int64_t left_ms(Clock::time_point end) {
  return std::max<int64_t>(
      0, std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count());
}

// One attempt on one address; the empty string if it connected, else why not.
std::string try_address(const addrinfo& address, int64_t timeout_ms) {
  const int fd = ::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                          address.ai_protocol);
  if (fd < 0) return std::strerror(errno);
  std::string error;
  if (::connect(fd, address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) {
      error = std::strerror(errno);
    } else {
      pollfd waiting{fd, POLLOUT, 0};
      int failure = ETIMEDOUT;
      socklen_t size = sizeof failure;
      if (::poll(&waiting, 1, static_cast<int>(timeout_ms)) > 0) {
        ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size);
      }
      if (failure != 0) error = std::strerror(failure);
    }
  }
  ::close(fd);
  return error;
}

std::string try_endpoint(const std::string& endpoint, int64_t timeout_ms) {
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos) return "no port";
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(endpoint.substr(0, colon).c_str(),
                                 endpoint.substr(colon + 1).c_str(), &hints, &found);
  if (code != 0) return ::gai_strerror(code);
  std::string error = "no address";
  for (const addrinfo* address = found; address != nullptr && !error.empty();
       address = address->ai_next) {
    error = try_address(*address, timeout_ms);
  }
  ::freeaddrinfo(found);
  return error;
}

}  // namespace

Status wait_ports(const std::vector<std::string>& endpoints, int64_t deadline_ms) {
  constexpr int64_t kAttemptMs = 1000;
  constexpr auto kPause = std::chrono::milliseconds(100);
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(deadline_ms);
  std::vector<std::pair<std::string, std::string>> waiting;
  waiting.reserve(endpoints.size());
  for (const std::string& endpoint : endpoints) waiting.emplace_back(endpoint, "not tried");
  for (;;) {
    std::vector<std::pair<std::string, std::string>> still;
    for (auto& [endpoint, error] : waiting) {
      error = try_endpoint(endpoint, std::clamp<int64_t>(left_ms(end), 1, kAttemptMs));
      if (!error.empty()) still.emplace_back(endpoint, error);
    }
    waiting = std::move(still);
    if (waiting.empty()) return Ok();
    if (left_ms(end) == 0) break;
    std::this_thread::sleep_for(
        std::min<std::chrono::milliseconds>(kPause, std::chrono::milliseconds(left_ms(end))));
  }
  std::string list;
  for (const auto& [endpoint, error] : waiting)
    list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", endpoint, error);
  return {StatusCode::kDistributed,
          fmt::format("no connection within {} ms to {} of {} servers: {}", deadline_ms,
                      waiting.size(), endpoints.size(), list)};
}

}  // namespace millrace::transpiler
