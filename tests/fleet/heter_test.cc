// Fleet jobs with heter workers: the dense layers of the job of ctr_job.h run in other processes,
// and it trains as without them.

#include <map>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/transport/inproc.h"
#include "tests/fleet/ctr_job.h"

namespace millrace::fleet {
namespace {

using ctr_job::check;
using ctr_job::loss_name;
using ctr_job::program_of;
using ctr_job::role_of;
using ctr_job::strategy_of;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

// The forward program, whose ops after the lookups are for another device.
std::unique_ptr<Program> heter_main() {
  auto program = program_of("origin_main.pb");
  bool is_dense = false;
  for (Op& op : program->root().ops()) {
    is_dense |= op.type() == "mul";
    if (is_dense) op.set_string("op_device", "gpu");
  }
  return program;
}

Status prepare_heter(Fleet& fleet, const RoleMaker& role, const DistributedStrategy& strategy) {
  MILLRACE_RETURN_IF_ERROR(fleet.init(role));
  MinimizeOptions optimizer;
  optimizer.method = Adam{};
  optimizer.learning_rate = 0.1;
  MILLRACE_RETURN_IF_ERROR(fleet.distributed_optimizer(optimizer, strategy));
  return fleet.minimize(*ops::standard_registry(), *heter_main(), *program_of("origin_startup.pb"),
                        loss_name());
}

RoleMaker heter_role(Role role, int id, const std::vector<std::string>& workers) {
  RoleMaker made = role_of(role == Role::kServer ? role : Role::kWorker, id, {"s:1", "s:2"});
  made.role = role;
  made.heter.all = workers;
  return made;
}

// Losses "<worker>/<step>", and the dense parameters at the end.
std::map<std::string, Floats> train_heter(bool sync, const std::vector<std::string>& workers,
                                          int steps) {
  std::map<std::string, Floats> found;
  std::mutex mutex;
  const auto way = std::make_shared<ps::InprocTransport>();
  std::vector<std::thread> threads;
  const auto serve = [&](Role role, int id) {
    threads.emplace_back([&, role, id] {
      Fleet fleet;
      check(prepare_heter(fleet, heter_role(role, id, workers), strategy_of(sync)));
      EXPECT_EQ(*fleet.is_heter_worker(), role == Role::kHeterWorker);
      check(fleet.init_server());
      check(fleet.run_server(*way));
    });
  };
  for (const int id : {0, 1}) serve(Role::kServer, id);
  for (int id = 0; id < static_cast<int>(workers.size()); ++id) serve(Role::kHeterWorker, id);
  for (const int worker : {0, 1}) {
    threads.emplace_back([&, worker] {
      Fleet fleet;
      check(prepare_heter(fleet, heter_role(Role::kWorker, worker, workers), strategy_of(sync)));
      check(fleet.init_worker(way));
      for (int step = 0; step < steps; ++step) {
        std::vector<Value> results(1);
        check(fleet.step(ctr_job::feeds_of(worker, step), {loss_name()}, results));
        const auto loss = results[0].get_if<Tensor>()->values<float>();
        const std::lock_guard lock(mutex);
        found[fmt::format("{}/{}", worker, step)] = {loss.begin(), loss.end()};
      }
      check(fleet.wait_for_all());
      if (worker == 0) {
        for (const std::string name : {"fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"}) {
          const auto values = fleet.worker()->scope().find(name)->get_if<Tensor>()->values<float>();
          found[name] = {values.begin(), values.end()};
        }
      }
      check(fleet.stop_worker());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return found;
}

TEST(FleetHeterWorkers, RunPartOfTheProgram) {
  const auto alone = train_heter(true, {}, 5);
  EXPECT_EQ(alone.size(), 14U);
  for (const std::vector<std::string>& workers :
       {std::vector<std::string>{"h:1"}, {"h:1", "h:2"}}) {
    const auto found = train_heter(true, workers, 5);
    ASSERT_EQ(found.size(), alone.size());
    for (const auto& [name, values] : alone) {
      ASSERT_EQ(found.at(name).size(), values.size());
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(found.at(name)[i], values[i], 2e-6) << name << " " << i;
    }
  }
}

TEST(FleetHeterWorkers, OfAsynchronousJobsTrainToo) {
  const auto found = train_heter(false, {"h:1"}, 40);
  EXPECT_EQ(found.size(), 84U);
  for (const int worker : {0, 1})
    EXPECT_LT(found.at(fmt::format("{}/39", worker))[0], found.at(fmt::format("{}/0", worker))[0]);
}

TEST(FleetHeterWorkers, WhatTheyDoNotHave) {
  const auto refusal = [](RoleMaker role, const char* guard = "cpu") {
    Fleet fleet;
    DistributedStrategy strategy = strategy_of(true);
    check(strategy.set_a_sync_configs({{"heter_worker_device_guard", guard}}));
    const Status status = prepare_heter(fleet, role, strategy);
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    return std::string(status.message());
  };
  RoleMaker worker = heter_role(Role::kHeterWorker, 0, {"h:1"});
  EXPECT_THAT(refusal(worker, "gpu"), HasSubstr("heter_worker_device_guard 'gpu'"));
  worker.heter.device = "gpu:0";
  EXPECT_THAT(refusal(worker), HasSubstr("HETER_DEVICE_TYPE asks for 'gpu:0'"));
  worker.heter.device = "cpu";
  worker.heter.stage_num = 3;
  EXPECT_THAT(refusal(worker), HasSubstr("STAGE_NUM is 3"));
}

TEST(FleetHeterWorkers, HaveNoTablesAndTrainNothing) {
  Fleet fleet;
  check(prepare_heter(fleet, heter_role(Role::kHeterWorker, 0, {"h:1"}), strategy_of(true)));
  EXPECT_EQ(fleet.programs(), nullptr);
  EXPECT_EQ(fleet.init_worker(std::make_shared<ps::InprocTransport>()).message(),
            "init_worker: expected a worker, this process is a heter worker");
  EXPECT_EQ(fleet.init_server_from("folder").message(),
            "init_server: a heter worker has no tables to load");
  ps::ServerOptions with_snapshots;
  with_snapshots.snapshot_root = "folder";
  EXPECT_EQ(fleet.init_server({}, with_snapshots).code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace millrace::fleet
