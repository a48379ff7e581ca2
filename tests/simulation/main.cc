// Runs cases of the simulated cluster. README.md in this folder explains it.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/simulation/case.h"
#include "tests/simulation/run.h"

namespace millrace::simulation {
namespace {

constexpr unsigned kRealSeconds = 60;  ///< after which a run is ended
constexpr const char* kUsage = R"(usage: simulate_jobs [OPTIONS]
  --seeds FROM:TO  the cases to run, TO included (default 1:100)
  --jobs N         runs at a time (default 1)
  --shrink         drop faults of a case that fails, as long as it still fails
  --twice          run each case twice: the events must be the same
  --trace          print the events of each case
  --etcd           cases with etcd, which have seeds of their own
  --unfenced       with --etcd: servers never ask whether they still have their names
  --check          what ctest runs: 100 cases, 30 with etcd, and a search for the split brain of
                   servers without a fence; without other options
  --finds TEXT     expect a finding with this text: end with 0 at the first case that has it
)";

struct Options {
  uint64_t from = 1;
  uint64_t to = 100;
  int jobs = 1;
  bool shrink = false;
  bool twice = false;
  bool trace = false;
  bool etcd = false;
  bool unfenced = false;
  std::string finds;
};

/// What a child process reported.
struct Result {
  std::vector<std::string> findings;
  std::string hash;
  std::string summary;
};

/// A child process that runs a case.
struct Child {
  Case job;
  std::FILE* output = nullptr;
  std::string folder;
};

std::string folder_of(const Case& job) {
  const char* const memory = "/dev/shm";
  const std::string root =
      access(memory, W_OK) == 0 ? memory : std::filesystem::temp_directory_path().string();
  return fmt::format("{}/millrace-simulation-{}-{}", root, getpid(), job.seed);
}

// One line each: a letter and text.
void write_outcome(std::FILE* to, const Outcome& outcome, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) fmt::print(to, "n{}\n", note);
  for (std::string finding : outcome.findings) {
    std::replace(finding.begin(), finding.end(), '\n', ' ');
    fmt::print(to, "f{}\n", finding);
  }
  fmt::print(to, "h{:016x}\n", outcome.hash);
  fmt::print(to, "s{}; {:.2f} s, {} switch points, {} switches\n", outcome.results,
             static_cast<double>(outcome.time) / 1e9, outcome.steps, outcome.switches);
  std::fflush(to);
}

// One thread runs at a time, so a second processor only makes the switches slower.
void stay_on_one_processor() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cpu = sched_getcpu();
  if (cpu >= 0) CPU_SET(static_cast<size_t>(cpu), &set);
  (void)sched_setaffinity(0, sizeof(set), &set);
}

[[noreturn]] void run_child(const Case& job, const std::string& folder, bool trace, int pipe) {
  std::FILE* const to = fdopen(pipe, "w");
  alarm(kRealSeconds);
  stay_on_one_processor();
  std::vector<std::string> notes;
  const auto end = [&](const Outcome& outcome) {
    write_outcome(to, outcome, notes);
    _exit(0);
  };
  end(run_case(job, folder, trace ? &notes : nullptr, end));
  std::abort();
}

Child start(const Case& job, bool trace) {
  Child child{job, nullptr, folder_of(job)};
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t id = fork();
  if (id < 0) std::abort();
  if (id == 0) {
    close(ends[0]);
    run_child(job, child.folder, trace, ends[1]);
  }
  close(ends[1]);
  child.output = fdopen(ends[0], "r");
  return child;
}

// The children end in any order; reading one to its end waits for it.
Result finish(Child& child) {
  Result result;
  char* line = nullptr;
  size_t room = 0;
  while (getline(&line, &room, child.output) > 0) {
    std::string_view text(line);
    text = text.substr(0, text.find('\n'));
    const std::string rest(text.substr(text.empty() ? 0 : 1));
    if (text.starts_with('f')) result.findings.push_back(rest);
    if (text.starts_with('h')) result.hash = rest;
    if (text.starts_with('s')) result.summary = rest;
    if (text.starts_with('n')) fmt::print("  {}\n", rest);
  }
  std::free(line);  // NOLINT: from getline
  std::fclose(child.output);
  int status = 0;
  (void)wait(&status);
  if (result.hash.empty())
    result.findings.push_back("the run crashed, or did not end in real time");
  std::filesystem::remove_all(child.folder);
  return result;
}

Result run(const Case& job, bool trace) {
  Child child = start(job, trace);
  return finish(child);
}

// Drops what is not needed for a failure.
Case shrink(Case job) {
  const auto still_fails = [](const Case& smaller) {
    return !run(smaller, false).findings.empty();
  };
  for (size_t i = job.faults.size(); i-- > 0;) {
    Case smaller = job;
    smaller.faults.erase(smaller.faults.begin() + static_cast<ptrdiff_t>(i));
    if (still_fails(smaller)) job = smaller;
  }
  Case quiet = job;
  quiet.noise = {};
  if (still_fails(quiet)) job = quiet;
  return job;
}

void print_case(const Case& job) {
  fmt::print("{}\n", describe(job));
  for (const Fault& fault : job.faults) fmt::print("  {}\n", describe(job, fault));
}

void print_findings(const std::vector<std::string>& findings) {
  constexpr size_t kMost = 5;
  for (size_t i = 0; i < findings.size() && i < kMost; ++i)
    fmt::print("  FAILED: {}\n", findings[i]);
  if (findings.size() > kMost) fmt::print("  and {} more\n", findings.size() - kMost);
}

Case case_of(uint64_t seed, const Options& options) {
  Case job = options.etcd ? make_etcd_case(seed) : make_case(seed);
  job.is_fenced = !options.unfenced;
  return job;
}

// Runs cases until one shows what is expected.
int find_expected(const Options& options) {
  for (uint64_t seed = options.from; seed <= options.to; ++seed) {
    const Case job = case_of(seed, options);
    const Result result = run(job, options.trace);
    for (const std::string& finding : result.findings) {
      if (finding.find(options.finds) == std::string::npos) continue;
      print_case(job);
      fmt::print("  as expected: {}\n", finding);
      return 0;
    }
  }
  fmt::print("seeds {} to {}: no case found '{}'\n", options.from, options.to, options.finds);
  return 1;
}

// \returns true if the promises held
bool judge(const Case& job, const Result& result, const Options& options) {
  std::vector<std::string> findings = result.findings;
  if (options.twice && run(job, false).hash != result.hash)
    findings.emplace_back("a second run had other events");
  if (findings.empty() && !options.trace) return true;
  print_case(job);
  fmt::print("  {} {}\n", result.hash, result.summary);
  print_findings(findings);
  if (!findings.empty() && options.shrink) {
    const Case smaller = shrink(job);
    fmt::print("shrunk to ");
    print_case(smaller);
    print_findings(run(smaller, true).findings);
  }
  std::fflush(stdout);
  return findings.empty();
}

int run_all(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  uint64_t failed = 0;
  std::vector<Child> running;
  const auto end_first = [&] {
    const Result result = finish(running.front());
    const Case job = running.front().job;
    running.erase(running.begin());
    if (!judge(job, result, options)) ++failed;
  };
  for (uint64_t seed = options.from; seed <= options.to; ++seed) {
    running.push_back(start(case_of(seed, options), options.trace));
    if (running.size() >= static_cast<size_t>(options.jobs)) end_first();
  }
  while (!running.empty()) end_first();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  fmt::print("seeds {} to {}: {:.1f} s\n", options.from, options.to, took.count());
  fmt::print("{} passed, {} failed\n", options.to - options.from + 1 - failed, failed);
  return failed == 0 ? 0 : 1;
}

// A few cases of each kind, those that once failed, and a fault of the product that they must find.
int check_all() {
  Options plain;
  Options etcd;
  etcd.etcd = true;
  etcd.to = 30;
  Options unfenced = etcd;
  unfenced.unfenced = true;
  unfenced.finds = "split brain";
  const int few = run_all(plain) + run_all(etcd);
  // another server does not respond: a lost heartbeat, and calls that have to greet a server again
  int found = 0;
  for (const uint64_t seed : {5180U, 6205U}) {
    plain.from = plain.to = seed;
    found += run_all(plain);
  }
  // a trainer is killed before its first hello; a connection is lost while etcd is down; a trainer
  // joins after a server has lost its first step for good; one that was lost sends its gradients to
  // a server that was started again
  for (const uint64_t seed : {1518U, 1773U, 2762U, 5537U, 6174U}) {
    etcd.from = etcd.to = seed;
    found += run_all(etcd);
  }
  const int failed = few + found + find_expected(unfenced);
  return failed == 0 ? 0 : 1;
}

bool parse(const std::vector<std::string>& words, Options& options) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool takes_value = word == "--seeds" || word == "--jobs" || word == "--finds";
    if (takes_value && ++i == words.size()) return false;
    if (word == "--seeds") {
      char* rest = nullptr;
      options.from = options.to = std::strtoull(words[i].c_str(), &rest, 10);
      if (*rest == ':') options.to = std::strtoull(rest + 1, &rest, 10);
      if (*rest != '\0' || options.to < options.from) return false;
    } else if (word == "--jobs") {
      options.jobs = std::max(1, std::atoi(words[i].c_str()));
    } else if (word == "--finds") {
      options.finds = words[i];
    } else if (word == "--etcd") {
      options.etcd = true;
    } else if (word == "--unfenced") {
      options.unfenced = true;
    } else if (word == "--shrink") {
      options.shrink = true;
    } else if (word == "--twice") {
      options.twice = true;
    } else if (word == "--trace") {
      options.trace = true;
    } else {
      return false;
    }
  }
  return options.etcd || !options.unfenced;  // without etcd there is no fence
}

}  // namespace
}  // namespace millrace::simulation

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  millrace::simulation::Options options;
  const bool checks = words == std::vector<std::string>{"--check"};
  if (!checks && !millrace::simulation::parse(words, options)) {
    std::cerr << millrace::simulation::kUsage;
    return 2;
  }
  // the threads of OpenMP wait outside of the simulation
  setenv("OMP_NUM_THREADS", "1", 1);
  if (checks) return millrace::simulation::check_all();
  return options.finds.empty() ? millrace::simulation::run_all(options)
                               : millrace::simulation::find_expected(options);
}
