#include "tools/ps/run_server.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include "ps/transport/tracing.h"
#include "tools/common/signal_watch.h"
#include "tools/ps/metrics_page.h"

namespace millrace::tools {
namespace {

// Freed memory that each thread keeps; also the minimum size for mmap allocations.
constexpr int kKeptBytes = 4 << 20;

// gRPC receives into memory that is freed with the message. By default the allocator returns it to
// the system each time, so that a message of half a MiB costs more than a hundred page faults.
void keep_freed_memory() {
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  mallopt(M_MMAP_THRESHOLD, kKeptBytes);
}

// Many systems allow more descriptors than a process gets by default, which would limit the
// connections.
void raise_descriptor_limit() {
  constexpr rlim_t kEnough = 65536;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kEnough);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);  // if it fails, there are fewer connections
}

}  // namespace

namespace {

StatusOr<int> serve(Tool& tool, const jobs::Server::Files& files, const PsFlags& flags,
                    jobs::Server::Settings settings) {
  if (files.program.empty())
    return Status(StatusCode::kUsage, "expected the program of the server (--program)");
  keep_freed_memory();
  raise_descriptor_limit();
  SignalWatch watch;
  ps::Metrics metrics;
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<ps::MetricsExposer> exposer,
                            show_metrics(flags.metrics, metrics));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::ConnectionOptions connection, connection_options(flags));
  MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<ps::Transport> transport,
                            jobs::open_transport(connection, tool.log_sink(), &metrics));
  ps::CallTrace trace;
  if (!flags.trace.empty()) transport = ps::make_tracing_transport(std::move(transport), trace);
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<jobs::Server> job,
                            jobs::open_server(files, std::move(settings), transport));
  job->on_ready([&metrics](const std::string& endpoint) {
    metrics.health().ready = true;
    std::fputs(fmt::format("ready {}\n", endpoint).c_str(), stdout);
    std::fflush(stdout);
  });
  if (exposer != nullptr) job->publish_to(metrics);
  // finish the running step, take the last snapshot, tell the trainers; but not for ever
  const auto grace = std::chrono::milliseconds(static_cast<int64_t>(flags.grace_s * 1000));
  watch.start([&job] { job->stop(); }, grace,
              [&tool, &flags] {
                tool.log(
                    LogLevel::kError,
                    fmt::format("the server did not stop within {} s (--grace)", flags.grace_s));
              });
  const Status served = job->serve();
  if (!flags.trace.empty()) {
    // write the trace also of a failed job, where it is most useful
    MILLRACE_RETURN_IF_ERROR(
        tool.write_file(flags.trace, trace.chrome_json("server " + flags.trace_name)));
  }
  MILLRACE_RETURN_IF_ERROR(served);
  if (watch.seen() == 0) return kDone;
  tool.log(LogLevel::kInfo, fmt::format("stopped by signal {}", watch.seen()));
  return watch.exit_code();
}

}  // namespace

StatusOr<int> run_server(Tool& tool, const jobs::Server::Files& files, const PsFlags& flags,
                         const std::string& files_root) {
  MILLRACE_ASSIGN_OR_RETURN(jobs::Server::Settings settings,
                            server_settings(tool, flags, files_root));
  return serve(tool, files, flags, std::move(settings));
}

StatusOr<int> run_heter_worker(Tool& tool, const jobs::Server::Files& files, const PsFlags& flags,
                               int number) {
  MILLRACE_ASSIGN_OR_RETURN(jobs::Server::Settings settings, server_settings(tool, flags, ""));
  return serve(tool, files, flags, jobs::heter_settings(std::move(settings), number));
}

}  // namespace millrace::tools
