#include "tools/ps/run_server.h"

#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "ps/metrics/exposer.h"
#include "ps/transport/tracing.h"
#include "tools/common/signal_watch.h"

namespace millrace::tools {
namespace {

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
  watch.start([&job] { job->stop(); });
  const Status served = job->serve();
  if (!flags.trace.empty()) {
    // a job that failed is what one wants to look at
    MILLRACE_RETURN_IF_ERROR(
        tool.write_file(flags.trace, trace.chrome_json("server " + flags.trace_name)));
  }
  MILLRACE_RETURN_IF_ERROR(served);
  if (watch.seen() == 0) return kDone;
  tool.log(LogLevel::kInfo, fmt::format("stopped by signal {}", watch.seen()));
  return watch.exit_code();
}

}  // namespace millrace::tools
