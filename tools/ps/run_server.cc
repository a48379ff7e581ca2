#include "tools/ps/run_server.h"

#include <atomic>
#include <cstdio>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include "ps/metrics/exposer.h"

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

}  // namespace

StatusOr<int> run_server(Tool& tool, const ServerJob::Files& files, const PsFlags& flags,
                         const std::string& files_root) {
  if (files.program.empty())
    return Status(StatusCode::kUsage, "give the program of the server (--program)");
  SignalWatch watch;
  ps::Metrics metrics;
  std::unique_ptr<ps::MetricsExposer> exposer;
  if (flags.metrics_port > 0) {
    MILLRACE_ASSIGN_OR_RETURN(exposer, ps::MetricsExposer::start(flags.metrics_port, metrics));
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<ps::Transport> transport,
                            open_transport(tool, flags, &metrics));
  MILLRACE_ASSIGN_OR_RETURN(
      const std::unique_ptr<ServerJob> job,
      ServerJob::open(tool, files, flags, tool.common().threads, transport, files_root));
  job->on_ready([](const std::string& endpoint) {
    std::fputs(fmt::format("ready {}\n", endpoint).c_str(), stdout);
    std::fflush(stdout);
  });
  watch.start(*job);
  MILLRACE_RETURN_IF_ERROR(job->serve());
  if (watch.seen() == 0) return kDone;
  tool.log(LogLevel::kInfo, fmt::format("stopped by signal {}", watch.seen()));
  return 128 + watch.seen();
}

}  // namespace millrace::tools
