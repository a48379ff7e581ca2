#include "ps/metrics/exposer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <list>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "framework/base/errors.h"

namespace millrace::ps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostReaders = 16;
constexpr std::chrono::seconds kReaderTime{5};
constexpr size_t kMostRequestBytes = 8192;
// Pause while the process has no descriptor for a connection.
constexpr int kNoDescriptorPauseMs = 20;

struct Page {
  int code = 200;
  std::string_view type = "text/plain";
  std::string text;
};

std::string_view reason_of(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Service Unavailable";
  }
}

Page health_page(bool good, const Health& health) {
  return {
      good ? 200 : 503, "application/json",
      fmt::format("{{\"live\": {}, \"ready\": {}}}\n", health.live.load(), health.ready.load())};
}

Page page_of(std::string_view path, const Metrics& metrics) {
  const Health& health = metrics.health();
  if (path == "/metrics") return {200, "text/plain; version=0.0.4", metrics.text()};
  if (path == "/healthz") return health_page(health.live && health.ready, health);
  if (path == "/healthz/live") return health_page(health.live, health);
  if (path == "/healthz/ready") return health_page(health.ready, health);
  return {404, "text/plain", "/metrics, /healthz, /healthz/live, /healthz/ready\n"};
}

// The response to a request, of which at least the first line is there.
std::string respond(std::string_view request, const Metrics& metrics) {
  const std::string_view line = request.substr(0, request.find('\r'));
  const size_t first = line.find(' ');
  const size_t second = line.find(' ', first == line.npos ? first : first + 1);
  Page page{400, "text/plain", "expected a request of HTTP/1\n"};
  bool has_body = true;
  if (second != line.npos && line.substr(second + 1).starts_with("HTTP/1.")) {
    const std::string_view method = line.substr(0, first);
    const std::string_view target = line.substr(first + 1, second - first - 1);
    has_body = method != "HEAD";
    page = method == "GET" || method == "HEAD"
               ? page_of(target.substr(0, target.find('?')), metrics)
               : Page{405, "text/plain", "only GET\n"};
  }
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      page.code, reason_of(page.code), page.type, page.text.size(),
      has_body ? page.text : std::string());
}

// One connection. It is never waited for: bytes are read and written as they can be.
struct Reader {
  int fd = -1;
  Clock::time_point end;
  std::string request;
  std::string response;  // empty until the request is complete
  size_t sent = 0;
  bool is_done = false;

  Reader(int socket, Clock::time_point until) : fd(socket), end(until) {}
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { close(fd); }

  void receive(const Metrics& metrics) {
    std::array<char, 1024> bytes{};
    const ssize_t got = recv(fd, bytes.data(), bytes.size(), 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) is_done = true;
    if (got <= 0) return;
    request.append(bytes.data(), static_cast<size_t>(got));
    if (request.find("\r\n\r\n") != std::string::npos || request.size() > kMostRequestBytes)
      response = respond(request, metrics);
  }
  void send() {
    const ssize_t count = ::send(fd, response.data() + sent, response.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR) is_done = true;
    if (count > 0) sent += static_cast<size_t>(count);
    if (sent < response.size()) return;
    shutdown(fd, SHUT_WR);
    is_done = true;
  }
};

// One thread serves all connections, so that none can keep another one waiting.
class Exposed final : public MetricsExposer {
 public:
  explicit Exposed(const Metrics& metrics) : metrics_(metrics) {}
  ~Exposed() override {
    ended_ = true;
    if (wake_[1] >= 0) close(wake_[1]);  // wakes the thread
    if (thread_.joinable()) thread_.join();
    for (const int fd : {listener_, wake_[0]})
      if (fd >= 0) close(fd);
  }

  Status listen(int port) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener_ < 0) return {StatusCode::kResource, "no descriptor for the metrics page"};
    const int yes = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener_, kMostReaders) != 0) {
      return {StatusCode::kDistributed,
              fmt::format("cannot show metrics at 127.0.0.1:{}: the port is in use", port)};
    }
    try {
      if (pipe2(wake_.data(), O_CLOEXEC) != 0)
        return {StatusCode::kResource, "no descriptors for the metrics page"};
      thread_ = std::thread([this] { serve(); });
    } catch (const std::exception& error) {
      return {StatusCode::kResource,
              fmt::format("no thread for the metrics page: {}", error.what())};
    }
    return Ok();
  }

 private:
  void serve() {
    while (!ended_) {
      try {
        serve_once();
      } catch (const std::exception&) {
        readers_.clear();  // no memory: try again with those that come
      }
    }
  }

  void serve_once() {
    std::vector<pollfd> waits{{wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Reader& reader : readers_)
      waits.push_back(
          {reader.fd, static_cast<short>(reader.response.empty() ? POLLIN : POLLOUT), 0});
    poll(waits.data(), waits.size(), readers_.empty() ? -1 : static_cast<int>(time_left()));
    size_t at = 2;
    for (Reader& reader : readers_) {
      if (waits[at++].revents == 0) continue;
      if (reader.response.empty()) {
        reader.receive(metrics_);
      } else {
        reader.send();
      }
    }
    const auto now = Clock::now();
    readers_.remove_if([&](const Reader& reader) { return reader.is_done || now >= reader.end; });
    if (waits[1].revents != 0) accept_reader();
  }

  // Milliseconds until the oldest connection has had its time.
  [[nodiscard]] int64_t time_left() const {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(readers_.front().end - Clock::now());
    return std::max<int64_t>(0, left.count());
  }

  // The oldest of too many connections makes room for a new one.
  void accept_reader() {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        poll(nullptr, 0, kNoDescriptorPauseMs);
      return;
    }
    if (readers_.size() >= kMostReaders) readers_.pop_front();
    readers_.emplace_back(fd, Clock::now() + kReaderTime);
  }

  const Metrics& metrics_;
  int listener_ = -1;
  std::array<int, 2> wake_{-1, -1};
  std::atomic<bool> ended_ = false;
  std::list<Reader> readers_;  // oldest first
  std::thread thread_;
};

}  // namespace

StatusOr<std::unique_ptr<MetricsExposer>> MetricsExposer::start(int port, const Metrics& metrics) {
  if (port < 1 || port > 65535)
    return InvalidArgument("port {} for metrics, expected 1 to 65535", port);
  auto exposed = std::make_unique<Exposed>(metrics);
  MILLRACE_RETURN_IF_ERROR(exposed->listen(port));
  return std::unique_ptr<MetricsExposer>(std::move(exposed));
}

}  // namespace millrace::ps
