// All-reduce of f32 between threads of one process, or between processes, by size.
//   all_reduce [--engine threads|shm|gloo] [--ranks 2] [--kib 1,64,...] [--check]
//   mpirun -n 2 all_reduce --engine mpi
// Prints a JSON line per size: name, kib, ranks, us median, min, p95, bus GB/s, runs. Between
// threads it also prints the time that memory needs for the traffic (every rank reads all parts and
// writes all results once), measured in the same run.

#include <thread>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bench/ranks.h"
#include "executor/collective/open_group.h"
#include "executor/collective/shared_group.h"

namespace {

using Clock = std::chrono::steady_clock;
using millrace::DType;
using millrace::bench::AllReduceOptions;
using millrace::executor::CollectiveGroup;

struct Options : AllReduceOptions {
  std::string engine = "threads";
};

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void end_unless(const millrace::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  std::exit(1);
}

void measure(CollectiveGroup& group, const Options& options) {
  for (const int64_t kib : options.kib) {
    const std::vector<double> rounds = millrace::bench::time_all_reduce(
        options, kib, group.size(),
        [&](std::vector<float>& data) {
          end_unless(group.all_reduce(DType::kFloat32, reinterpret_cast<std::byte*>(data.data()),
                                      static_cast<int64_t>(data.size())));
        },
        [&] { end_unless(group.barrier()); });
    if (group.rank() != 0) continue;
    const double median = rounds[rounds.size() / 2];
    const double bytes = static_cast<double>(kib) * 1024 * 2 * (group.size() - 1) / group.size();
    fmt::print(
        "{{\"name\": \"all_reduce_{}\", \"kib\": {}, \"ranks\": {}, \"us_median\": {:.2f}, "
        "\"us_min\": {:.2f}, \"us_p95\": {:.2f}, \"bus_gb_s\": {:.3f}, \"runs\": {}}}\n",
        group.engine(), kib, group.size(), median, rounds.front(), rounds.back(),
        bytes / median / 1e3, rounds.size());
    std::fflush(stdout);
  }
}

// Both threads read two parts and write both, as an all-reduce of 64 MiB must.
void measure_memory() {
  constexpr int64_t kCount = int64_t{16} << 20U;
  std::vector<float> a(kCount, 1.0F);
  std::vector<float> b(kCount, 2.0F);
  std::vector<double> rounds;
  for (int round = 0; round < 9; ++round) {
    const auto start = Clock::now();
    const auto half = [&](int64_t begin, int64_t end) {
      float* const x = a.data();
      float* const y = b.data();
      for (int64_t i = begin; i < end; ++i) x[i] = y[i] = (x[i] + y[i]) * 0.5F;
    };
    std::thread other(half, kCount / 2, kCount);
    half(0, kCount / 2);
    other.join();
    rounds.push_back(us_since(start));
  }
  std::sort(rounds.begin(), rounds.end());
  fmt::print(
      "{{\"name\": \"memory_of_64_mib\", \"us_median\": {:.2f}, \"us_min\": {:.2f}, "
      "\"runs\": {}}}\n",
      rounds[rounds.size() / 2], rounds.front(), rounds.size());
}

int run_threads(const Options& options) {
  auto groups = millrace::executor::make_thread_groups(options.ranks);
  if (!groups.ok()) return 1;
  std::vector<std::thread> threads;
  for (size_t r = 1; r < groups->size(); ++r)
    threads.emplace_back([&, r] { measure(*(*groups)[r], options); });
  measure(*groups->front(), options);
  for (std::thread& thread : threads) thread.join();
  if (!options.check) measure_memory();
  return 0;
}

int run_rank(const Options& options, int rank, const std::string& folder) {
  millrace::executor::GroupOptions join;
  join.settings.rank = rank;
  join.settings.size = options.ranks;
  join.folder = folder;
  const auto engine = millrace::executor::parse_engine(options.engine);
  if (!engine.ok()) return 2;
  join.engine = *engine;
  auto group = millrace::executor::open_group(join);
  if (!group.ok()) {
    std::fprintf(stderr, "%s\n", group.status().to_string().c_str());
    return 1;
  }
  measure(**group, options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("time of all-reduce by size");
  app.add_option("--engine", options.engine, "threads, shm, gloo, or mpi under mpirun");
  app.add_option("--ranks", options.ranks, "number of ranks; ignored under mpirun");
  app.add_option("--kib", options.kib, "sizes in KiB")->delimiter(',');
  app.add_flag("--check", options.check, "only check the results");
  CLI11_PARSE(app, argc, argv);
  if (options.engine == "threads") return run_threads(options);
  if (options.engine == "mpi") return run_rank(options, 0, {});
  return millrace::bench::run_ranks(options.ranks, [&](int rank, const std::string& folder) {
    return run_rank(options, rank, folder);
  });
}
