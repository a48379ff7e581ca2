#include "ps/metrics/exposer.h"

#include <cerrno>
#include <chrono>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "ps/transport/socket.h"

namespace millrace::ps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostConnections = 16;
constexpr size_t kMostRequestBytes = 8192;
constexpr std::chrono::seconds kPatience{5};

std::string answer(const char* status, const std::string& type, const std::string& body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, type, body.size(), body);
}

std::string health(bool good, const Health& health) {
  return answer(
      good ? "200 OK" : "503 Service Unavailable", "application/json",
      fmt::format("{{\"live\": {}, \"ready\": {}}}\n", health.live.load(), health.ready.load()));
}

// The answer to a whole request.
std::string respond(const std::string& request, const Metrics& metrics) {
  const size_t line = request.find("\r\n");
  const size_t first = request.find(' ');
  const size_t second = request.find(' ', first + 1);
  if (first == std::string::npos || second == std::string::npos || second > line)
    return answer("400 Bad Request", "text/plain", "no request\n");
  if (request.compare(0, first, "GET") != 0)
    return answer("405 Method Not Allowed", "text/plain", "only GET\n");
  std::string path = request.substr(first + 1, second - first - 1);
  path.resize(std::min(path.size(), path.find('?')));
  const Health& state = metrics.health();
  if (path == "/metrics") return answer("200 OK", "text/plain; version=0.0.4", metrics.text());
  if (path == "/healthz") return health(state.live && state.ready, state);
  if (path == "/healthz/live") return health(state.live, state);
  if (path == "/healthz/ready") return health(state.ready, state);
  return answer("404 Not Found", "text/plain",
                "/metrics, /healthz, /healthz/live, /healthz/ready\n");
}

// One who asks: first the request comes in, then the answer goes out.
struct Connection {
  explicit Connection(int fd) : socket(fd), until(Clock::now() + kPatience) {}
  Socket socket;
  Clock::time_point until;
  std::string in;
  std::string out;
  size_t sent = 0;
};

// Moves what can be moved without waiting. \returns false when the connection is over
bool serve(Connection& connection, const Metrics& metrics) {
  if (connection.out.empty()) {
    char bytes[1024];
    const ssize_t count = ::recv(connection.socket.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (count <= 0) return count < 0 && (errno == EAGAIN || errno == EINTR);
    connection.in.append(bytes, static_cast<size_t>(count));
    if (connection.in.find("\r\n\r\n") != std::string::npos) {
      connection.out = respond(connection.in, metrics);
    } else if (connection.in.size() > kMostRequestBytes) {
      connection.out = answer("431 Request Header Fields Too Large", "text/plain", "too long\n");
    }
    if (connection.out.empty()) return true;
  }
  const std::string& out = connection.out;
  const ssize_t count = ::send(connection.socket.fd(), out.data() + connection.sent,
                               out.size() - connection.sent, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  connection.sent += static_cast<size_t>(count);
  return connection.sent < out.size();
}

class Exposed final : public MetricsExposer {
 public:
  Exposed(Socket listener, Socket wake, const Metrics& metrics)
      : metrics_(metrics),
        listener_(std::move(listener)),
        wake_(std::move(wake)),
        thread_([this] { work(); }) {}
  ~Exposed() override {
    const uint64_t one = 1;
    // the counter of an eventfd takes a write unless it is nearly full
    if (::write(wake_.fd(), &one, sizeof one) < 0) ::shutdown(listener_.fd(), SHUT_RDWR);
    thread_.join();
  }

 private:
  void work() {
    std::list<Connection> open;
    std::vector<pollfd> waits;
    while (true) {
      waits.assign({{wake_.fd(), POLLIN, 0}});
      // beyond the limit others wait in the queue of the system
      waits.push_back({open.size() < kMostConnections ? listener_.fd() : -1, POLLIN, 0});
      for (const Connection& each : open)
        waits.push_back(
            {each.socket.fd(), static_cast<short>(each.out.empty() ? POLLIN : POLLOUT), 0});
      const int timeout = open.empty() ? -1 : 500;
      if (::poll(waits.data(), waits.size(), timeout) < 0 && errno != EINTR) return;
      if (waits[0].revents != 0) return;
      size_t at = 2;
      for (auto each = open.begin(); each != open.end(); ++at) {
        const bool goes_on =
            (waits[at].revents == 0 || serve(*each, metrics_)) && Clock::now() < each->until;
        each = goes_on ? std::next(each) : open.erase(each);
      }
      if ((waits[1].revents & POLLIN) == 0) continue;
      const int fd = ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd >= 0) open.emplace_back(fd);
    }
  }

  const Metrics& metrics_;
  Socket listener_;
  Socket wake_;
  std::thread thread_;
};

}  // namespace

StatusOr<std::unique_ptr<MetricsExposer>> MetricsExposer::start(int port, const Metrics& metrics) {
  if (port < 1 || port > 65535)
    return InvalidArgument("port {} for metrics, expected 1 to 65535", port);
  MILLRACE_ASSIGN_OR_RETURN(Socket listener, Socket::listen({"127.0.0.1", port}));
  Socket wake(::eventfd(0, EFD_CLOEXEC));
  if (!wake.is_open())
    return Status(StatusCode::kDistributed, fmt::format("cannot show metrics at port {}", port));
  return std::unique_ptr<MetricsExposer>(
      std::make_unique<Exposed>(std::move(listener), std::move(wake), metrics));
}

}  // namespace millrace::ps
