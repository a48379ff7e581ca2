// explore_protocol: all states of small synchronous jobs (README.md of this folder).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tests/explorer/explore.h"

namespace millrace::explorer {
namespace {

struct Settings {
  bool large = false;
  bool trace = false;
  bool mutations = true;
  std::string only;
  size_t most_states = 3'000'000;
};

// What must hold in every state of these.
std::vector<Job> jobs(bool large) {
  std::vector<Job> all;
  all.push_back({.name = "plain", .cuts = 1, .late = 1});
  all.push_back({.name = "durable", .snapshot_every = 1, .durable = true, .crashes = 1});
  all.push_back({.name = "go-back", .steps = 1, .snapshot_every = 2, .crashes = 1});
  all.push_back({.name = "restart", .trainers = 1, .snapshot_every = 2, .restarts = 1});
  all.push_back({.name = "elastic-kill", .elastic = true, .kills = 1});
  all.push_back({.name = "elastic-silence", .elastic = true, .silences = 1});
  all.push_back({.name = "replace", .steps = 3, .elastic = true, .kills = 1, .replaces = true});
  if (!large) return all;
  all.push_back({.name = "durable-cut",
                 .snapshot_every = 1,
                 .durable = true,
                 .crashes = 1,
                 .cuts = 1,
                 .late = 1});
  all.push_back({.name = "go-back-2", .snapshot_every = 2, .crashes = 1});
  all.push_back({.name = "restart-2", .snapshot_every = 2, .restarts = 1});
  all.push_back(
      {.name = "restart-3", .trainers = 1, .steps = 3, .snapshot_every = 2, .restarts = 1});
  all.push_back({.name = "restart-twice", .trainers = 1, .snapshot_every = 2, .restarts = 2});
  all.push_back({.name = "durable-2", .snapshot_every = 1, .durable = true, .crashes = 2});
  all.push_back({.name = "go-back-twice", .snapshot_every = 1, .crashes = 2});
  all.push_back({.name = "go-back-3", .steps = 3, .snapshot_every = 2, .crashes = 1});
  all.push_back({.name = "three", .trainers = 3, .snapshot_every = 1, .crashes = 1});
  all.push_back({.name = "elastic-3", .trainers = 3, .elastic = true, .silences = 1, .kills = 1});
  all.push_back({.name = "elastic-durable",
                 .elastic = true,
                 .snapshot_every = 1,
                 .durable = true,
                 .crashes = 1,
                 .kills = 1,
                 .may_end = true});
  all.push_back({.name = "elastic-go-back",
                 .elastic = true,
                 .snapshot_every = 1,
                 .crashes = 1,
                 .kills = 1,
                 .may_end = true});
  return all;
}

// Jobs with a fault that is built in, each of which must be noticed.
std::vector<Job> mutants() {
  return {
      {.name = "no-confirmation",
       .elastic = true,
       .kills = 1,
       .mutation = Mutation::kNoConfirmation},
      {.name = "no-incarnation",
       .steps = 1,
       .elastic = true,
       .late = 1,
       .kills = 1,
       .replaces = true,
       .mutation = Mutation::kNoIncarnation},
      {.name = "whole-record",
       .snapshot_every = 1,
       .crashes = 1,
       .mutation = Mutation::kWholeRecord},
      {.name = "repeat-carried-out", .cuts = 1, .mutation = Mutation::kRepeatsCarriedOut},
      {.name = "not-durable",
       .snapshot_every = 1,
       .durable = true,
       .crashes = 1,
       .mutation = Mutation::kNotDurable},
      {.name = "no-settling",
       .steps = 1,
       .snapshot_every = 2,
       .crashes = 1,
       .mutation = Mutation::kNoSettling},
      {.name = "early-replacement",
       .steps = 3,
       .elastic = true,
       .kills = 1,
       .replaces = true,
       .mutation = Mutation::kEarlyReplacement},
      {.name = "exact-snapshots",
       .trainers = 1,
       .snapshot_every = 2,
       .restarts = 1,
       .mutation = Mutation::kExactSnapshots},
      {.name = "own-count", .elastic = true, .kills = 1, .mutation = Mutation::kOwnCount},
  };
}

void print_trace(const Outcome& outcome) {
  for (size_t i = 0; i < outcome.trace.size(); ++i)
    fmt::print("  {:3} {}\n", i + 1, outcome.trace[i]);
}

Outcome explore_and_print(const Job& job, const Settings& settings) {
  const auto begin = std::chrono::steady_clock::now();
  Outcome outcome = explore(job, settings.most_states);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  fmt::print("{:<20} {:9} states {:10} events {:6.1f} s  {}\n", job.name, outcome.states,
             outcome.events, time.count(),
             !outcome.violation.empty() ? outcome.violation
             : outcome.is_complete      ? "ok"
                                        : "more states than the limit");
  std::fflush(stdout);
  return outcome;
}

int run(const Settings& settings) {
  int failed = 0;
  int ran = 0;
  for (const Job& job : jobs(settings.large)) {
    if (!settings.only.empty() && settings.only != job.name) continue;
    ++ran;
    const Outcome outcome = explore_and_print(job, settings);
    if (outcome.violation.empty() && outcome.is_complete) continue;
    print_trace(outcome);
    ++failed;
  }
  for (const Job& mutant : mutants()) {
    if (!settings.mutations || (!settings.only.empty() && settings.only != mutant.name)) continue;
    ++ran;
    const Outcome outcome = explore_and_print(mutant, settings);
    if (settings.trace) print_trace(outcome);
    if (!outcome.violation.empty()) continue;
    fmt::print("  the fault '{}' was not noticed\n", mutant.name);
    ++failed;
  }
  fmt::print("{} explored, {} failed\n", ran, failed);
  return failed == 0 && ran > 0 ? 0 : 1;
}

}  // namespace
}  // namespace millrace::explorer

int main(int argc, char** argv) {
  millrace::explorer::Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--large") {
      settings.large = true;
    } else if (flag == "--trace") {
      settings.trace = true;
    } else if (flag == "--no-mutations") {
      settings.mutations = false;
    } else if (flag == "--only" && i + 1 < argc) {
      settings.only = argv[++i];
    } else if (flag == "--most-states" && i + 1 < argc) {
      settings.most_states = std::stoul(argv[++i]);
    } else {
      fmt::print(stderr,
                 "usage: explore_protocol [--large] [--only NAME] [--trace] [--no-mutations] "
                 "[--most-states N]\n");
      return 2;
    }
  }
  return millrace::explorer::run(settings);
}
