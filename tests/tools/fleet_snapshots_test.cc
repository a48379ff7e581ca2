// Snapshots of the servers of fleet jobs: processes that are killed and started again, as in other
// jobs.

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/checkpoints.h"
#include "api/fleet.h"
#include "executor/array_values.h"
#include "io/checkpoint/folder.h"
#include "tests/support/process.h"
#include "tests/tools/ctr_folder.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Processes = std::vector<std::unique_ptr<spawn::Process>>;

constexpr int kSteps = 12;

class FleetSnapshots : public CtrFolder {
 protected:
  void make_job(const std::string& mode, const std::string& more = "") {
    const std::string list = spawn::free_endpoints(2);
    servers_ = {list.substr(0, list.find(',')), list.substr(list.find(',') + 1)};
    transpile("job", mode, servers_, kWorkers, more);
    write_feeds(0, kSteps);
  }
  // A job whose trainers have the dense parameters.
  void make_hybrid_job() {
    make_job("sync", R"(, "dense_gradients": "all_reduce")");
    const std::string list = spawn::free_endpoints(kWorkers);
    trainers_ = {list.substr(0, list.find(',')), list.substr(list.find(',') + 1)};
    of_trainers_ = {"--endpoints", list};
  }
  // The results of the same job without a fault.
  void run_undisturbed() {
    succeed("run-program",
            joined(cluster("job", kSteps, "out.npz"), {"--save-persistables", at("whole.npz")}));
    whole_ = floats_in(at("whole.npz"));
    losses_ = floats_in(at("out.npz"));
  }
  [[nodiscard]] std::unique_ptr<spawn::Process> server(int i, const Words& more) const {
    return std::make_unique<spawn::Process>(joined(
        {spawn::tool("pserver"), "--program", at(fmt::format("{}/pserver_{}/__model__", job_, i)),
         "--snapshot-dir", at(snapshots_)},
        more));
  }
  [[nodiscard]] std::unique_ptr<spawn::Process> trainer(int t, const Words& more = {}) const {
    return std::make_unique<spawn::Process>(joined({spawn::tool("run-program"),
                                                    "--role",
                                                    "trainer",
                                                    "--trainer-id",
                                                    std::to_string(t),
                                                    "--transpiled",
                                                    at(job_),
                                                    "--feed-steps",
                                                    at(fmt::format("feeds_{}.npz", t)),
                                                    "--steps",
                                                    std::to_string(steps_),
                                                    "--fetch",
                                                    ctr_job::loss_name(),
                                                    "--output",
                                                    at(fmt::format("out_{}.npz", t)),
                                                    "--save-persistables",
                                                    at(fmt::format("after_{}.npz", t)),
                                                    "--threads",
                                                    "1",
                                                    "--force",
                                                    "--reconnect-timeout-ms",
                                                    "30000",
                                                    "--deadline-ms",
                                                    "50000"},
                                                   joined(of_trainers_, more)));
  }
  void start_all(const Words& of_servers, const Words& of_first_server = {}) {
    processes_.clear();
    processes_.push_back(server(0, joined(of_servers, of_first_server)));
    processes_.push_back(server(1, of_servers));
    for (int t = 0; t < kWorkers; ++t) processes_.push_back(trainer(t));
  }
  // Another process in place of server 0, once that has killed itself.
  void replace_first_server(const Words& flags) {
    ASSERT_EQ(processes_[0]->wait(kTimeoutMs), 128 + SIGKILL) << processes_[0]->output();
    processes_[0] = server(0, flags);
  }
  void expect_all_end_well() {
    for (const auto& process : processes_)
      EXPECT_EQ(process->wait(kTimeoutMs), 0) << process->output();
  }
  // A worker of the job in this process, by a loop of its own. \returns how often it went back
  int train_in_own_loop(int worker) {
    api::Fleet fleet(*api::Connection::open());
    check(fleet.init({.id = worker,
                      .worker_num = kWorkers,
                      .server_endpoints = servers_,
                      .worker_endpoints = trainers_}));
    api::FleetStrategy strategy{.a_sync = false};
    if (!trainers_.empty()) strategy.dense_gradients = "all_reduce";
    check(fleet.distributed_optimizer({.method = Adam{}, .learning_rate = 0.1}, strategy));
    const std::string loss = ctr_job::loss_name();
    check(fleet.minimize(*ctr_job::program_of("origin_main.pb"),
                         *ctr_job::program_of("origin_startup.pb"), loss));
    check(fleet.init_worker());
    int returns = 0;
    while (fleet.next_step() < kSteps) {
      const int64_t step = fleet.next_step();
      const NamedValues feeds = ctr_job::feeds_of(worker, static_cast<int>(step));
      const auto results = fleet.step(*executor::to_arrays(feeds), {loss});
      if (results.ok()) {
        const auto found = results->at(loss).values<float>();
        EXPECT_EQ(std::vector<float>(found.begin(), found.end()),
                  losses_.at(fmt::format("t{}/step{}/{}", worker, step, loss)));
        continue;
      }
      EXPECT_TRUE(fleet.must_go_back()) << results.status().to_string();
      if (!fleet.must_go_back()) break;
      check(fleet.go_back());
      ++returns;
    }
    check(fleet.stop_worker());
    return returns;
  }
  // True if that holds before the time of a test is over.
  template <typename Holds>
  static bool soon(Holds&& holds) {
    for (int waited = 0; waited < kTimeoutMs && !holds(); ++waited)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return holds();
  }
  // The losses of the steps from `first` on.
  void expect_undisturbed(int first = 0) {
    for (int t = 0; t < kWorkers; ++t) {
      EXPECT_EQ(floats_in(at(fmt::format("after_{}.npz", t))), whole_) << t;
      const Arrays own = floats_in(at(fmt::format("out_{}.npz", t)));
      EXPECT_EQ(own.size(), static_cast<size_t>(kSteps - first));
      for (const auto& [name, value] : own)
        EXPECT_EQ(value, losses_.at(fmt::format("t{}/{}", t, name))) << name;
    }
  }

  std::string job_ = "job";
  std::string snapshots_ = "snapshots";
  Words of_trainers_;                  ///< more words of each trainer
  std::vector<std::string> trainers_;  ///< endpoints; empty: servers have the dense parameters
  int steps_ = kSteps;
  std::vector<std::string> servers_;
  Processes processes_;  ///< two servers, two trainers
  Arrays whole_;
  Arrays losses_;
};

// A snapshot of every step, so that no other process goes back.
TEST_F(FleetSnapshots, AKilledServerOfASynchronousJobGoesOnFromItsLastStep) {
  make_job("sync");
  run_undisturbed();
  const Words flags{"--snapshot-every", "1", "--snapshot-durable"};
  for (const std::string point :
       {"server/before-apply:5", "server/after-apply:5", "server/before-answer:30"}) {
    SCOPED_TRACE(point);
    fs::remove_all(at("snapshots"));
    start_all(flags, {"--kill-point", point});
    replace_first_server(flags);
    expect_all_end_well();
    EXPECT_THAT(processes_[0]->output(), HasSubstr("loaded snapshot"));
    expect_undisturbed();
  }
}

// Trainers and the other server go back to the step of its snapshot.
TEST_F(FleetSnapshots, ASynchronousJobGoesBackToTheSnapshotOfAKilledServer) {
  make_job("sync");
  run_undisturbed();
  const Words flags{"--snapshot-every", "4"};
  for (const std::string point :
       {"server/before-apply:7", "server/after-apply:7", "server/before-apply:2"}) {
    SCOPED_TRACE(point);
    fs::remove_all(at("snapshots"));
    start_all(flags, {"--kill-point", point});
    replace_first_server(flags);
    expect_all_end_well();
    for (const int t : {2, 3})
      EXPECT_THAT(processes_[static_cast<size_t>(t)]->output(), HasSubstr("goes back to step"));
    expect_undisturbed();
  }
}

TEST_F(FleetSnapshots, LoopsOfOnesOwnGoBackToTheSnapshotOfAKilledServer) {
  for (const bool is_hybrid : {false, true}) {
    SCOPED_TRACE(is_hybrid ? "hybrid" : "all parameters on servers");
    processes_.clear();
    fs::remove_all(at("snapshots"));
    if (is_hybrid) {
      make_hybrid_job();
    } else {
      make_job("sync");
    }
    run_undisturbed();
    const Words flags{"--snapshot-every", "4"};
    processes_.push_back(server(0, joined(flags, {"--kill-point", "server/before-apply:7"})));
    processes_.push_back(server(1, flags));
    std::array<int, kWorkers> returns{};
    std::vector<std::thread> workers;
    for (int t = 0; t < kWorkers; ++t)
      workers.emplace_back([&, t] { returns[static_cast<size_t>(t)] = train_in_own_loop(t); });
    replace_first_server(flags);
    for (std::thread& worker : workers) worker.join();
    expect_all_end_well();
    for (const int each : returns) EXPECT_GT(each, 0);
  }
}

// Trainers take the dense half of that step from their own copies. The server is lost where it
// applies a step, where trainers fetch rows, before the first snapshot by steps, and with the last
// step.
TEST_F(FleetSnapshots, AHybridJobGoesBackWithTheDenseParametersOfItsTrainers) {
  make_hybrid_job();
  run_undisturbed();
  const Words flags{"--snapshot-every", "4"};
  const Words endpoints = of_trainers_;
  for (const auto& [point, engine] :
       {std::pair<std::string, std::string>{"server/before-apply:7", "shm"},
        {"server/after-apply:7", "gloo"},
        {"server/before-answer:40", "shm"},
        {"server/before-apply:2", "shm"},
        {"server/before-apply:12", "shm"}}) {
    SCOPED_TRACE(point);
    fs::remove_all(at("snapshots"));
    of_trainers_ = joined(endpoints, {"--engine", engine});
    start_all(flags, {"--kill-point", point});
    replace_first_server(flags);
    expect_all_end_well();
    for (const int t : {2, 3})
      EXPECT_THAT(processes_[static_cast<size_t>(t)]->output(), HasSubstr("goes back to step"));
    expect_undisturbed();
  }
}

TEST_F(FleetSnapshots, AHybridJobGoesOnWhereEachStepHasASnapshot) {
  make_hybrid_job();
  run_undisturbed();
  const Words flags{"--snapshot-every", "1", "--snapshot-durable"};
  start_all(flags, {"--kill-point", "server/before-apply:5"});
  replace_first_server(flags);
  expect_all_end_well();
  expect_undisturbed();
}

// Its trainers would have new dense parameters, beside rows of step 12.
TEST_F(FleetSnapshots, AHybridJobIsNotStartedFromTheSnapshotsOfAnotherRun) {
  make_hybrid_job();
  const Words flags{"--snapshot-every", "4"};
  start_all(flags);
  expect_all_end_well();
  start_all(flags);
  for (const size_t t : {2, 3}) {
    EXPECT_NE(processes_[t]->wait(kTimeoutMs), 0) << t;
    EXPECT_THAT(processes_[t]->output(), HasSubstr("has loaded a snapshot of an earlier run"));
  }
  processes_.clear();
  fs::remove_all(at("snapshots"));
  processes_.push_back(server(0, flags));
  processes_.push_back(server(1, {"--snapshot-every", "2"}));
  for (int t = 0; t < kWorkers; ++t) processes_.push_back(trainer(t));
  for (const size_t t : {2, 3}) {
    EXPECT_NE(processes_[t]->wait(kTimeoutMs), 0) << t;
    EXPECT_THAT(processes_[t]->output(), HasSubstr("expected the same in a job"));
  }
}

// A server that was lost before its first snapshot gets the first parameters again.
TEST_F(FleetSnapshots, AServerThatIsLostAtTheStartGetsTheFirstParametersAgain) {
  make_job("sync");
  run_undisturbed();
  const Words flags{"--snapshot-every", "4"};
  for (const std::string point : {"server/before-apply:1", "snapshot/begin"}) {
    SCOPED_TRACE(point);
    fs::remove_all(at("snapshots"));
    start_all(flags, {"--kill-point", point});
    ASSERT_EQ(processes_[0]->wait(kTimeoutMs), 128 + SIGKILL) << processes_[0]->output();
    fs::remove_all(at("snapshots/server-0"));
    processes_[0] = server(0, flags);
    expect_all_end_well();
    expect_undisturbed();
  }
}

// The rate is computed by ops of the workers, which count steps.
TEST_F(FleetSnapshots, AJobThatIsStartedAgainContinuesWithItsRates) {
  make_job("sync");
  write("min.json", fmt::format(R"({{"losses": ["{}"], "optimizer": [{{"type": "adam",
      "schedule": {{"type": "exponential", "learning_rate": 0.1, "decay_steps": 2,
                         "decay_rate": 0.5}}}}]}})",
                                ctr_job::loss_name()));
  succeed("transpile-program",
          {"--program", std::string(ctr_job::kFolder) + "origin_main.pb", "--startup",
           std::string(ctr_job::kFolder) + "origin_startup.pb", "--minimize", at("min.json"),
           "--fleet", at("fleet.json"), "-o", at("job"), "--force", "-q"});
  run_undisturbed();
  const Words flags{"--snapshot-every", "4", "--snapshot-durable"};
  start_all(flags, {"--kill-point", "server/before-apply:7"});
  ASSERT_EQ(processes_[0]->wait(kTimeoutMs), 128 + SIGKILL) << processes_[0]->output();
  start_all(flags);  // the other processes are killed
  expect_all_end_well();
  EXPECT_THAT(processes_[2]->output(), HasSubstr("trainer 0 begins at step 4"));
  expect_undisturbed(4);
}

// Two servers, then three, then one: the same bits as without a change, with optimizers whose state
// has numbers for all elements.
TEST_F(FleetSnapshots, AJobContinuesOnOtherNumbersOfServers) {
  make_job("sync");
  run_undisturbed();
  steps_ = 5;
  start_all({"--snapshot-every", "5"});
  expect_all_end_well();
  const auto reshard_for = [&](const std::string& job) {
    const std::string from = std::exchange(job_, job);
    const std::string old = std::exchange(snapshots_, job + "_snapshots");
    if (job == "three") {
      succeed("checkpoint", {"reshard", at(old), "--slices", at(from), "--to-slices", at(job_),
                             "-o", at(snapshots_)});
    } else {
      check(api::reshard_fleet_snapshots(at(old), at(from), at(job_), at(snapshots_)));
    }
  };
  const auto run_on = [&](int servers, int steps) {
    processes_.clear();
    for (int i = 0; i < servers; ++i) processes_.push_back(server(i, {"--snapshot-every", "5"}));
    steps_ = steps;
    for (int t = 0; t < kWorkers; ++t) processes_.push_back(trainer(t));
    expect_all_end_well();
    EXPECT_THAT(processes_.back()->output(),
                HasSubstr(fmt::format("begins at step {}", steps == 10 ? 5 : 10)));
  };
  const std::string list = spawn::free_endpoints(3);
  const size_t second = list.find(',') + 1;
  const size_t third = list.find(',', second) + 1;
  transpile(
      "three", "sync",
      {list.substr(0, second - 1), list.substr(second, third - 1 - second), list.substr(third)});
  reshard_for("three");
  run_on(3, 10);
  transpile("one", "sync", {servers_[0]});
  reshard_for("one");
  run_on(1, kSteps);
  expect_undisturbed(10);
  transpile("other", "async", {servers_[0]});
  const Ended refused = run("checkpoint", {"reshard", at(snapshots_), "--slices", at(job_),
                                           "--to-slices", at("other"), "-o", at("refused")});
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.output, HasSubstr("the new job is not synchronous"));
  EXPECT_THAT(api::reshard_fleet_snapshots(at(snapshots_), at(job_), at("other"), at("refused"))
                  .to_string(),
              HasSubstr("the new job is not synchronous"));
  const Ended foreign = run("checkpoint", {"reshard", at("snapshots"), "--slices", at("three"),
                                           "--to-slices", at("one"), "-o", at("refused")});
  EXPECT_NE(foreign.code, 0);
}

TEST_F(FleetSnapshots, ASnapshotOfAnotherJobIsRefused) {
  make_job("sync");
  start_all({"--snapshot-every", "4"});
  expect_all_end_well();
  const auto refused = [&] {
    const auto process = server(0, {});
    EXPECT_EQ(process->wait(kTimeoutMs), 3);
    return process->output();
  };
  transpile("job", "sync", {servers_[0]});
  EXPECT_THAT(refused(), HasSubstr("expected 'plan: 1 servers', found 'plan: 2 servers'"));
  transpile("job", "async", servers_);
  EXPECT_THAT(refused(), HasSubstr("the snapshot belongs to another job"));
}

// Later updates are lost; the job continues.
TEST_F(FleetSnapshots, AsynchronousAndGeoJobsGoOnFromTheLastSnapshot) {
  for (const auto& [mode, more] : {std::pair<std::string, std::string>{"async", ""},
                                   {"geo", R"(, "a_sync_configs": {"k_steps": 2})"}}) {
    SCOPED_TRACE(mode);
    fs::remove_all(at("snapshots"));
    make_job(mode, more);
    const Words flags{"--snapshot-interval-ms", "20"};
    start_all(flags);
    const std::string folder = at("snapshots/server-0");
    ASSERT_TRUE(soon([&] { return fs::exists(folder); }));
    for (const size_t t : {2, 3}) processes_[t]->signal(SIGSTOP);
    ASSERT_TRUE(soon([&] {
      const auto entries = io::list_checkpoints(folder);
      return entries.ok() && std::ranges::any_of(*entries, &io::CheckpointEntry::complete);
    }));
    processes_[0]->signal(SIGKILL);
    replace_first_server(flags);
    for (const size_t t : {2, 3}) processes_[t]->signal(SIGCONT);
    expect_all_end_well();
    EXPECT_THAT(processes_[0]->output(), HasSubstr("loaded snapshot"));
    EXPECT_EQ(floats_in(at("after_0.npz")).size(), 5U);
  }
}

TEST_F(FleetSnapshots, AnotherProcessTakesThePlaceOfALostWorker) {
  make_job("sync");
  const Words silence{"--silence-timeout-ms", "3000"};
  for (const int i : {0, 1}) processes_.push_back(server(i, joined(silence, {"--elastic"})));
  processes_.push_back(trainer(0, silence));
  processes_.push_back(trainer(1, joined(silence, {"--kill-point", "trainer/before-send:5"})));
  ASSERT_EQ(processes_[3]->wait(kTimeoutMs), 128 + SIGKILL) << processes_[3]->output();
  processes_[3] = trainer(1, silence);
  expect_all_end_well();
  EXPECT_THAT(processes_[0]->output(), HasSubstr("another process replaces trainer 1 at step"));
}

// Without a snapshot it has no parameters, and must not make any up.
TEST_F(FleetSnapshots, AnAsynchronousServerWithoutASnapshotEndsTheJob) {
  make_job("async");
  start_all({}, {"--kill-point", "server/before-answer:60"});
  ASSERT_EQ(processes_[0]->wait(kTimeoutMs), 128 + SIGKILL) << processes_[0]->output();
  fs::remove_all(at("snapshots"));
  processes_[0] = server(0, {});
  for (const size_t t : {2, 3}) {
    EXPECT_EQ(processes_[t]->wait(kTimeoutMs), 5) << processes_[t]->output();
    EXPECT_THAT(processes_[t]->output(), HasSubstr("have no values: trainer 0 sends them"))
        << t << processes_[0]->output() << processes_[1]->output() << processes_[5 - t]->output();
  }
}

}  // namespace
}  // namespace millrace::tools
