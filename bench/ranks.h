#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

/// Common code of the all-reduce benchmarks.
namespace millrace::bench {

struct AllReduceOptions {
  int ranks = 2;
  std::vector<int64_t> kib = {1, 4, 16, 64, 256, 1024, 4096, 16384, 65536};
  bool check = false;  ///< one call a size: whether the sums are right
};

/// Microseconds of a call on `kib` KiB of f32, in nine rounds of enough calls for a stable time;
/// sorted. Exits the process if the sum of ones is not `ranks`.
/// \param reduce   sums the data over all ranks, in place
/// \param barrier  returns when all ranks have reached it
template <typename Reduce, typename Barrier>
std::vector<double> time_all_reduce(const AllReduceOptions& options, int64_t kib, int ranks,
                                    Reduce reduce, Barrier barrier) {
  std::vector<float> data(static_cast<size_t>(kib * 256), 1.0F);
  reduce(data);
  if (data.front() != static_cast<float>(ranks) || data.back() != data.front()) {
    std::fprintf(stderr, "wrong sum\n");
    std::exit(1);
  }
  const int64_t calls = options.check ? 1 : std::clamp<int64_t>(65536 / kib, 4, 4000);
  std::vector<double> rounds;
  for (int round = 0; round < (options.check ? 1 : 9); ++round) {
    std::fill(data.begin(), data.end(), 1e-30F);
    barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) reduce(data);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    rounds.push_back(took.count() / static_cast<double>(calls));
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds;
}

/// Runs a function once per rank: rank 0 in this process, the others in child processes. The folder
/// is new and common to all ranks. Returns 0 if all succeeded.
inline int run_ranks(int ranks,
                     const std::function<int(int rank, const std::string& folder)>& run) {
  std::string folder = "/tmp/millrace_all_reduce_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 1;
  for (int rank = 1; rank < ranks; ++rank) {
    if (fork() == 0) _exit(run(rank, folder));
  }
  int code = run(0, folder);
  for (int rank = 1; rank < ranks; ++rank) {
    int status = 0;
    wait(&status);
    if (status != 0) code = 1;
  }
  return code;
}

}  // namespace millrace::bench
