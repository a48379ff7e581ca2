// One rank of a group of processes, for tests:
//   collective_rank CHECK rank size engine endpoints timeout_ms [folder]
// CHECK is suite, gather (texts of ranks, as checkpoints exchange them), steps (repeated all_reduce
// with a line each), large-steps, or absent (other ranks never connect).

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>
#include <unistd.h>

#include "executor/collective/open_group.h"
#include "tests/executor/collective/group_checks.h"

namespace {

using millrace::Status;
using millrace::executor::CollectiveGroup;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Longer than any test waits, so that a rank that is not killed exits eventually.
constexpr int kMostSteps = 30'000;

int run_steps(CollectiveGroup& group, int64_t count) {
  std::vector<float> data(static_cast<size_t>(count), 1.0F);
  for (int step = 0; step < kMostSteps; ++step) {
    const Status status = group.all_reduce(millrace::DType::kFloat32,
                                           reinterpret_cast<std::byte*>(data.data()), count);
    if (!status.ok()) {
      say(status.to_string());
      // after an error the group stays unusable
      say("again: " + group.barrier().to_string());
      return 5;
    }
    data.assign(data.size(), 1.0F);
    say("step " + std::to_string(step));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return 1;
}

int run_check(const std::string& check, const millrace::executor::GroupOptions& options) {
  auto group = millrace::executor::open_group(options);
  if (!group.ok()) {
    say(group.status().to_string());
    return 5;
  }
  say("engine " + std::string((*group)->engine()));
  say("rank " + std::to_string((*group)->rank()) + " is pid " + std::to_string(getpid()));
  if (check == "steps") return run_steps(**group, 1000);
  if (check == "large-steps") return run_steps(**group, 500'000);
  std::string problem = check == "gather" ? millrace::executor::check_gather(**group)
                                          : millrace::executor::check_group(**group);
  if (problem.empty() && check != "gather") problem = millrace::executor::check_subgroups(**group);
  say(problem.empty() ? "all fine" : problem);
  return problem.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) return 2;
  millrace::executor::GroupOptions options;
  options.settings.rank = std::atoi(argv[2]);
  options.settings.size = std::atoi(argv[3]);
  const auto engine = millrace::executor::parse_engine(argv[4]);
  if (!engine.ok()) return 2;
  options.engine = *engine;
  llvm::SmallVector<llvm::StringRef, 8> endpoints;
  llvm::StringRef(argv[5]).split(endpoints, ',', -1, false);
  for (const llvm::StringRef endpoint : endpoints) options.endpoints.push_back(endpoint.str());
  options.settings.timeout_ms = std::atoi(argv[6]);
  if (argc > 7) options.folder = argv[7];
  options.by_mpirun = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
  options.job = "test";
  options.join_timeout_ms = std::string(argv[1]) == "absent" ? 500 : 20'000;
  return run_check(argv[1], options);
}
