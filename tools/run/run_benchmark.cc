#include <filesystem>

#include "framework/base/json_writer.h"
#include "jobs/data/feed_files.h"
#include "jobs/run/benchmark.h"
#include "jobs/run/session.h"
#include "jobs/run/stop_together.h"
#include "jobs/stats/step_facts.h"
#include "kernels/cpu/cpu_isa.h"
#include "tools/run/gpu.h"
#include "tools/run/parallel.h"
#include "tools/run/run_once.h"
#include "tools/run/session_options.h"

namespace millrace::tools {

StatusOr<int> run_benchmark(Tool& tool, const RunOptions& options,
                            const std::shared_ptr<const executor::Runtime>& runtime,
                            const SignalWatch& watch) {
  MILLRACE_ASSIGN_OR_RETURN(const jobs::SessionOptions how, session_options(tool, options));
  MILLRACE_ASSIGN_OR_RETURN(jobs::Session session, jobs::open_session(how, runtime));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::FeedOptions feed, feed_options(tool, options));
  MILLRACE_ASSIGN_OR_RETURN(const executor::NamedValues feeds,
                            jobs::read_feeds(feed, session.program()));
  jobs::StopTogether stop([&watch] { return watch.seen(); }, session.ranks);
  MILLRACE_ASSIGN_OR_RETURN(
      const jobs::BenchmarkResult times,
      jobs::run_benchmark(session, feeds,
                          {.fetches = jobs::wanted_fetches(options.fetches, session),
                           .warmup = options.warmup,
                           .steps = options.benchmark,
                           .duration = options.duration},
                          stop));
  if (stop.signal() != 0) {
    tool.log(LogLevel::kWarning, fmt::format("stopped by signal {}", stop.signal()));
    return SignalWatch::exit_code_of(stop.signal());
  }
  JsonWriter out;
  out.begin_object();
  out.member("name", std::filesystem::path(session.name).filename().string());
  out.member("steps", static_cast<int64_t>(times.ms.size()));
  out.member("threads", tool.common().threads).member("devices", options.devices);
  out.member("cpu_isa", kernels::effective_cpu_isa());
  out.key("ms").begin_object();
  out.member("min", times.ms.front()).member("p50", times.quantile(0.5));
  out.member("p90", times.quantile(0.9)).member("max", times.ms.back()).end_object();
  out.member("cpu_ms", times.cpu_ms);
  out.member("examples_per_s",
             static_cast<double>(jobs::batch_of(feeds)) * 1e3 / times.quantile(0.5));
  out.member("peak_rss_mb", times.peak_rss_mb);
  write_gpu_summary(session, out);
  out.member("plan_ms", session.plan_ms).member("load_ms", session.load_ms).end_object();
  std::string line = out.take();
  std::erase(line, '\n');
  MILLRACE_RETURN_IF_ERROR(tool.write_file(options.output, line + "\n"));
  return kDone;
}

}  // namespace millrace::tools
