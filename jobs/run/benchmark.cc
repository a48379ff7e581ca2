#include "jobs/run/benchmark.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <sys/resource.h>

namespace millrace::jobs {
namespace {

using Clock = std::chrono::steady_clock;

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

}  // namespace

double BenchmarkResult::quantile(double q) const {
  return ms[static_cast<size_t>(std::lround(q * static_cast<double>(ms.size() - 1)))];
}

StatusOr<BenchmarkResult> run_benchmark(Session& session, const executor::NamedValues& feeds,
                                        const BenchmarkOptions& options, StopTogether& stop) {
  std::vector<Value> results;
  executor::NamedValues joined;
  const auto run = [&] {
    Status status = session.parallel == nullptr
                        ? session.prepared->run(feeds, options.fetches, results)
                        : run_step(session, feeds, options.fetches, joined);
    return std::move(status).in_file(session.name);
  };
  for (int64_t i = 0; i < options.warmup && stop.signal() == 0; ++i) {
    MILLRACE_RETURN_IF_ERROR(run());
    MILLRACE_RETURN_IF_ERROR(stop.after_step());
  }
  BenchmarkResult result;
  result.ms.reserve(static_cast<size_t>(options.steps));
  const double cpu_before = cpu_ms();
  const auto until = Clock::now() + std::chrono::duration<double>(options.duration);
  for (int64_t i = 0; stop.signal() == 0 && (i < options.steps || Clock::now() < until); ++i) {
    const auto start = Clock::now();
    MILLRACE_RETURN_IF_ERROR(run());
    result.ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    MILLRACE_RETURN_IF_ERROR(stop.after_step());
  }
  if (!result.ms.empty())
    result.cpu_ms = (cpu_ms() - cpu_before) / static_cast<double>(result.ms.size());
  std::sort(result.ms.begin(), result.ms.end());
  result.peak_rss_mb = peak_rss_mb();
  return result;
}

}  // namespace millrace::jobs
