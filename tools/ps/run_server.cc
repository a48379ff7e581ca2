#include "tools/ps/run_server.h"

#include <atomic>
#include <cstdio>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>
#include <pthread.h>
#include <signal.h>

#include "ps/metrics/exposer.h"
#include "ps/transport/tracing.h"

namespace millrace::tools {
namespace {

// Waits for signals in a thread of its own, so that no work is done in a handler. To be made before
// other threads, which inherit the mask.
class SignalWatch {
 public:
  SignalWatch() {
    sigemptyset(&signals_);
    for (const int signal : {SIGTERM, SIGINT, SIGUSR2}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch() {
    if (thread_.joinable()) {
      pthread_kill(thread_.native_handle(), SIGUSR2);
      thread_.join();
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  void start(ServerJob& job) {
    thread_ = std::thread([this, &job] {
      int signal = 0;
      if (sigwait(&signals_, &signal) != 0 || signal == SIGUSR2) return;
      seen_ = signal;
      job.stop();
    });
  }
  /// Signal that ended the server; 0: none.
  [[nodiscard]] int seen() const { return seen_; }

 private:
  sigset_t signals_{};
  sigset_t before_{};
  std::atomic<int> seen_{0};
  std::thread thread_;
};

// "PORT" or "127.0.0.1:PORT".
StatusOr<int> metrics_port(const std::string& text) {
  llvm::StringRef rest = text;
  if (rest.contains(':') && !rest.consume_front("127.0.0.1:") && !rest.consume_front("localhost:"))
    return Status(
        StatusCode::kUsage,
        fmt::format("--metrics {}: numbers are shown on this machine only, at 127.0.0.1", text));
  int port = 0;
  if (!rest.empty() && (rest.getAsInteger(10, port) || port < 0 || port > 65535))
    return Status(StatusCode::kUsage,
                  fmt::format("--metrics {}: '{}' is no port", text, rest.str()));
  return port;
}

}  // namespace

StatusOr<int> run_server(Tool& tool, const ServerJob::Files& files, const PsFlags& flags,
                         const std::string& files_root) {
  if (files.program.empty())
    return Status(StatusCode::kUsage, "give the program of the server (--program)");
  SignalWatch watch;
  ps::Metrics metrics;
  std::unique_ptr<ps::MetricsExposer> exposer;
  MILLRACE_ASSIGN_OR_RETURN(const int port, metrics_port(flags.metrics));
  if (port > 0) {
    MILLRACE_ASSIGN_OR_RETURN(exposer, ps::MetricsExposer::start(port, metrics));
  }
  MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<ps::Transport> transport,
                            open_transport(tool, flags, &metrics));
  ps::CallTrace trace;
  if (!flags.trace.empty()) transport = ps::make_tracing_transport(std::move(transport), trace);
  MILLRACE_ASSIGN_OR_RETURN(
      const std::unique_ptr<ServerJob> job,
      ServerJob::open(tool, files, flags, tool.common().threads, transport, files_root));
  job->on_ready([](const std::string& endpoint) {
    std::fputs(fmt::format("ready {}\n", endpoint).c_str(), stdout);
    std::fflush(stdout);
  });
  if (port > 0) job->publish_to(metrics);
  watch.start(*job);
  const Status served = job->serve();
  if (!flags.trace.empty()) {
    // a job that failed is what one wants to look at
    MILLRACE_RETURN_IF_ERROR(
        tool.write_file(flags.trace, trace.chrome_json("server " + flags.trace_name)));
  }
  MILLRACE_RETURN_IF_ERROR(served);
  if (watch.seen() == 0) return kDone;
  tool.log(LogLevel::kInfo, fmt::format("stopped by signal {}", watch.seen()));
  return 128 + watch.seen();
}

}  // namespace millrace::tools
