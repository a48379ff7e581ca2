#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include <sys/resource.h>

#include "framework/base/json_writer.h"
#include "jobs/data/feed_files.h"
#include "jobs/run/session.h"
#include "jobs/run/stop_together.h"
#include "jobs/stats/step_facts.h"
#include "tools/run/gpu.h"
#include "tools/run/parallel.h"
#include "tools/run/run_once.h"
#include "tools/run/session_options.h"

namespace millrace::tools {
namespace {

using Clock = std::chrono::steady_clock;
using executor::NamedValues;

double peak_rss_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

double cpu_ms() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

double quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(std::lround(q * static_cast<double>(sorted.size() - 1)))];
}

}  // namespace

StatusOr<int> run_benchmark(Tool& tool, const RunOptions& options,
                            const std::shared_ptr<const executor::Runtime>& runtime,
                            const SignalWatch& watch) {
  MILLRACE_ASSIGN_OR_RETURN(const jobs::SessionOptions how, session_options(tool, options));
  MILLRACE_ASSIGN_OR_RETURN(jobs::Session session, jobs::open_session(how, runtime));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::FeedOptions feed, feed_options(tool, options));
  MILLRACE_ASSIGN_OR_RETURN(const NamedValues feeds, jobs::read_feeds(feed, session.program()));
  const std::vector<std::string> fetches = jobs::wanted_fetches(options.fetches, session);
  std::vector<Value> results;
  NamedValues joined;
  const auto run = [&] {
    Status status = session.parallel == nullptr ? session.prepared->run(feeds, fetches, results)
                                                : jobs::run_step(session, feeds, fetches, joined);
    return std::move(status).in_file(session.name);
  };
  jobs::StopTogether stop([&watch] { return watch.seen(); }, session.ranks);
  for (int64_t i = 0; i < options.warmup && stop.signal() == 0; ++i) {
    MILLRACE_RETURN_IF_ERROR(run());
    MILLRACE_RETURN_IF_ERROR(stop.after_step());
  }
  std::vector<double> ms;
  ms.reserve(static_cast<size_t>(options.benchmark));
  const double cpu_before = cpu_ms();
  const auto until = Clock::now() + std::chrono::duration<double>(options.duration);
  for (int64_t i = 0; stop.signal() == 0 && (i < options.benchmark || Clock::now() < until); ++i) {
    const auto start = Clock::now();
    MILLRACE_RETURN_IF_ERROR(run());
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    MILLRACE_RETURN_IF_ERROR(stop.after_step());
  }
  if (stop.signal() != 0) {
    tool.log(LogLevel::kWarning, fmt::format("stopped by signal {}", stop.signal()));
    return SignalWatch::exit_code_of(stop.signal());
  }
  const double cpu = (cpu_ms() - cpu_before) / static_cast<double>(ms.size());
  std::sort(ms.begin(), ms.end());
  JsonWriter out;
  out.begin_object();
  out.member("name", std::filesystem::path(session.name).filename().string());
  out.member("steps", static_cast<int64_t>(ms.size())).member("threads", tool.common().threads);
  out.member("devices", options.devices);
  out.key("ms").begin_object();
  out.member("min", ms.front()).member("p50", quantile(ms, 0.5));
  out.member("p90", quantile(ms, 0.9)).member("max", ms.back()).end_object();
  out.member("cpu_ms", cpu);
  out.member("examples_per_s",
             static_cast<double>(jobs::batch_of(feeds)) * 1e3 / quantile(ms, 0.5));
  out.member("peak_rss_mb", peak_rss_mb());
  write_gpu_summary(session, out);
  out.member("plan_ms", session.plan_ms).member("load_ms", session.load_ms).end_object();
  std::string line = out.take();
  std::erase(line, '\n');
  MILLRACE_RETURN_IF_ERROR(tool.write_output(line + "\n"));
  return kDone;
}

}  // namespace millrace::tools
