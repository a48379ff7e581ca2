#include "ps/metrics/exposer.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <httplib.h>

#include "framework/base/errors.h"
#include "framework/base/module.h"

namespace millrace::ps {
namespace {

constexpr size_t kThreads = 2;
constexpr std::chrono::seconds kExposerPatience{5};

void answer_health(bool good, const Health& health, httplib::Response& answer) {
  answer.status = good ? 200 : 503;
  answer.set_content(
      fmt::format("{{\"live\": {}, \"ready\": {}}}\n", health.live.load(), health.ready.load()),
      "application/json");
}

class Exposed final : public MetricsExposer {
 public:
  explicit Exposed(const Metrics& metrics) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_.set_keep_alive_max_count(1);
    server_.set_read_timeout(kExposerPatience);
    server_.set_write_timeout(kExposerPatience);
    server_.set_payload_max_length(0);
    server_.set_pre_routing_handler([](const httplib::Request& request, httplib::Response& answer) {
      using Handled = httplib::Server::HandlerResponse;
      if (request.method == "GET" || request.method == "HEAD") return Handled::Unhandled;
      answer.status = 405;
      answer.set_content("only GET\n", "text/plain");
      return Handled::Handled;
    });
    const Health& health = metrics.health();
    server_.Get("/metrics", [&](const httplib::Request&, httplib::Response& answer) {
      answer.set_content(metrics.text(), "text/plain; version=0.0.4");
    });
    server_.Get("/healthz", [&](const httplib::Request&, httplib::Response& answer) {
      answer_health(health.live && health.ready, health, answer);
    });
    server_.Get("/healthz/live", [&](const httplib::Request&, httplib::Response& answer) {
      answer_health(health.live, health, answer);
    });
    server_.Get("/healthz/ready", [&](const httplib::Request&, httplib::Response& answer) {
      answer_health(health.ready, health, answer);
    });
    server_.set_error_handler([](const httplib::Request&, httplib::Response& answer) {
      if (answer.status == 404)
        answer.set_content("/metrics, /healthz, /healthz/live, /healthz/ready\n", "text/plain");
    });
  }
  ~Exposed() override {
    if (!thread_.joinable()) return;
    // stop() has no effect before the server listens
    while (!server_.is_running() && !ended_) std::this_thread::yield();
    server_.stop();
    thread_.join();
  }

  // False if the port is in use.
  bool listen(int port) {
    // by default, the library lets several processes listen on one port
    server_.set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    if (!server_.bind_to_port("127.0.0.1", port)) return false;
    thread_ = std::thread([this] {
      server_.listen_after_bind();
      ended_ = true;
    });
    return true;
  }

 private:
  httplib::Server server_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

StatusOr<std::unique_ptr<MetricsExposer>> start(int port, const Metrics& metrics) {
  if (port < 1 || port > 65535)
    return InvalidArgument("port {} for metrics, expected 1 to 65535", port);
  auto exposed = std::make_unique<Exposed>(metrics);
  if (!exposed->listen(port)) {
    return Status(StatusCode::kDistributed,
                  fmt::format("cannot show metrics at 127.0.0.1:{}: the port is in use", port));
  }
  return std::unique_ptr<MetricsExposer>(std::move(exposed));
}

constexpr ExposerModule kModule{&start};

}  // namespace
}  // namespace millrace::ps

extern "C" const char* millrace_module(const void** functions) {
  *functions = &millrace::ps::kModule;
  return millrace::build_stamp();
}
