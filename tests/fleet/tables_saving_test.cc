// Saving and loading through the facade: a job that stops, is saved and continues as another job
// ends with the same bits as one that never stopped, for any number of servers.

#include <filesystem>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/feed_values.h"
#include "executor/inference_model.h"
#include "executor/standard_runtime.h"
#include "fleet/fleet.h"
#include "ps/transport/inproc.h"
#include "tests/fleet/ctr_job.h"
#include "tests/io/temp_folder.h"

namespace millrace::fleet {
namespace {

namespace fs = std::filesystem;
using ctr_job::check;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kWorkers = 2;

std::vector<std::string> endpoints(int servers) {
  std::vector<std::string> names;
  for (int i = 0; i < servers; ++i) names.push_back("127.0.0.1:" + std::to_string(7100 + i));
  return names;
}

std::vector<float> floats_of(const Value& value) {
  const auto values = value.get_if<Tensor>()->values<float>();
  return {values.begin(), values.end()};
}

// A job of two workers, each of which runs the function of a test.
struct SavedTables {
  int servers = 2;
  std::string files_root;  ///< folder that servers may use; empty: none
  std::string snapshots;   ///< folder for a snapshot of every step; empty: none
  std::string load;        ///< folder that servers load at the start; empty: none
  std::vector<std::string> load_tables;
  using Work = std::function<void(Fleet& fleet, int worker)>;

  void run(const Work& work) const {
    const auto way = std::make_shared<ps::InprocTransport>();
    std::vector<std::thread> threads;
    for (int i = 0; i < servers; ++i) threads.emplace_back([&, i] { serve(*way, i); });
    for (int i = 0; i < kWorkers; ++i) {
      threads.emplace_back([&, i] {
        Fleet fleet;
        ctr_job::prepare(fleet, ctr_job::role_of(Role::kWorker, i, endpoints(servers)), true,
                         Adam{});
        check(fleet.init_worker(way));
        if (fleet.worker() == nullptr) return;
        work(fleet, i);
        check(fleet.stop_worker());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  void serve(ps::Transport& way, int index) const {
    Fleet fleet;
    ctr_job::prepare(fleet, ctr_job::role_of(Role::kServer, index, endpoints(servers)), true,
                     Adam{});
    ps::ServerOptions service;
    service.files_root = files_root;
    service.snapshot_root = snapshots;
    service.snapshot_every = 1;
    service.start_timeout = std::chrono::seconds(60);
    check(load.empty() ? fleet.init_server({}, service)
                       : fleet.init_server_from(load, load_tables, {}, service));
    check(fleet.run_server(way));
  }
};

// Steps [begin, end) of a worker; the losses of worker 0.
void train(Fleet& fleet, int worker, int begin, int end, std::vector<float>& losses) {
  const std::string loss = ctr_job::loss_name();
  for (int step = begin; step < end; ++step) {
    std::vector<Value> results(1);
    check(fleet.step(ctr_job::feeds_of(worker, step), {loss}, results));
    if (worker == 0) losses.push_back(floats_of(results[0])[0]);
    // lookups of a worker do not depend on the progress of the other, but the saved values do
    check(fleet.barrier_worker());
  }
}

class TablesSaving : public ::testing::Test {
 protected:
  // Trains three steps, saves, trains three more.
  void SetUp() override {
    SavedTables job;
    job.files_root = folder_.path();
    job.run([&](Fleet& fleet, int worker) {
      train(fleet, worker, 0, 3, first_);
      check(fleet.save_persistables(target("saved")));
      check(fleet.save_inference_model(target("model"), {"emb_slot0", "emb_slot1", "dense"},
                                       {"fc_1.tmp_1"}));
      check(fleet.barrier_worker());
      train(fleet, worker, 3, 6, later_);
    });
    ASSERT_EQ(later_.size(), 3U);
    ASSERT_NE(first_, later_);
  }
  [[nodiscard]] FleetSaveTarget target(const std::string& name, Replace replace = Replace::kNo) {
    return {folder_.path(), name, replace, 0};
  }
  [[nodiscard]] std::string at(const std::string& name) const { return folder_ / name; }

  millrace::testing::TempFolder folder_;
  std::vector<float> first_;
  std::vector<float> later_;
};

TEST_F(TablesSaving, AJobThatBeginsWithTheTablesGoesOnWithTheSameBits) {
  for (const int servers : {2, 1, 3}) {
    SavedTables job;
    job.servers = servers;
    job.load = at("saved");
    std::vector<float> losses;
    job.run([&](Fleet& fleet, int worker) { train(fleet, worker, 3, 6, losses); });
    EXPECT_EQ(losses, later_) << servers;
  }
}

TEST_F(TablesSaving, AJobThatRunsTakesThemUp) {
  for (const int servers : {2, 3}) {
    SavedTables job;
    job.servers = servers;
    job.files_root = folder_.path();
    std::vector<float> losses;
    std::vector<float> ignored;
    job.run([&](Fleet& fleet, int worker) {
      train(fleet, worker, 7, 9, ignored);
      check(fleet.load_model(target("saved")));
      train(fleet, worker, 3, 6, losses);
    });
    EXPECT_EQ(losses, later_) << servers;
  }
}

TEST_F(TablesSaving, AJobContinuesFromTheSnapshotsOfAnother) {
  SavedTables job;
  job.snapshots = at("snapshots");
  std::vector<float> losses;
  job.run([&](Fleet& fleet, int worker) {
    EXPECT_EQ(fleet.first_step(), 0);
    train(fleet, worker, 0, 3, losses);
  });
  EXPECT_EQ(losses, first_);
  losses.clear();
  job.run([&](Fleet& fleet, int worker) {
    EXPECT_EQ(fleet.first_step(), 3);
    train(fleet, worker, 3, 6, losses);
  });
  EXPECT_EQ(losses, later_);
}

TEST_F(TablesSaving, WhatGoingBackWouldLoseIsRefusedWhereServersTakeSnapshots) {
  SavedTables job;
  job.files_root = folder_.path();
  job.snapshots = at("snapshots");
  job.run([&](Fleet& fleet, int worker) {
    const Status shrunk = fleet.shrink();
    const Status loaded = fleet.load_model(target("saved"));
    if (worker != 0) return;
    EXPECT_EQ(shrunk.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(shrunk.message(), HasSubstr("ending the day of tables by a call"));
    EXPECT_EQ(loaded.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(loaded.message(), HasSubstr("loading tables in a running job"));
    const auto& entry = fleet.worker()->tables()->all().begin()->second;
    const std::vector<float> row(static_cast<size_t>(entry.layout.pull_width));
    const std::vector<int64_t> id{7};
    EXPECT_THAT(fleet.worker()->table_client().set_sparse(entry.layout, id, row).message(),
                HasSubstr("setting rows of tables by a call"));
  });
}

TEST_F(TablesSaving, RowsAloneLeaveTheDenseParametersToTheFirstWorker) {
  SavedTables job;
  job.load = at("saved");
  job.load_tables = {"emb"};
  std::vector<float> losses;
  job.run([&](Fleet& fleet, int worker) { train(fleet, worker, 0, 1, losses); });
  EXPECT_NE(losses[0], first_[0]);  // different rows
  EXPECT_NE(losses[0], later_[0]);  // different dense parameters
}

TEST_F(TablesSaving, TheModelRunsWithoutServers) {
  EXPECT_THAT(millrace::testing::names_in(at("model")),
              ElementsAre("__model__", "emb", "fc_0.b_0", "fc_0.w_0", "fc_1.b_0", "fc_1.w_0"));
  Scope scope;
  const auto model = executor::load_inference_model(at("model"), scope);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const executor::Executor executor(executor::standard_runtime(), {});
  const auto prepared = executor.prepare(*model->program, scope);
  ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
  std::vector<Value> results(1);
  check((*prepared)->run(ctr_job::feeds_of(0, 3), {"fc_1.tmp_1"}, results));

  // the loss of the step after the save has the same forward pass
  Scope trained;
  for (const std::string name : {"emb", "fc_0.b_0", "fc_0.w_0", "fc_1.b_0", "fc_1.w_0"})
    check(executor::copy_value(*scope.find(name), trained.local(name)));
  const auto main = ctr_job::program_of("origin_main.pb");
  const auto whole = executor.prepare(*main, trained);
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  std::vector<Value> wanted(2);
  check((*whole)->run(ctr_job::feeds_of(0, 3), {"fc_1.tmp_1", ctr_job::loss_name()}, wanted));
  EXPECT_EQ(floats_of(results[0]), floats_of(wanted[0]));
  EXPECT_EQ(floats_of(wanted[1])[0], later_[0]);
}

TEST_F(TablesSaving, FilesAreNotReplacedUnlessAsked) {
  SavedTables job;
  job.files_root = folder_.path();
  job.run([&](Fleet& fleet, int worker) {
    if (worker != 0) return;
    const Status refused = fleet.save_persistables(target("saved"));
    EXPECT_EQ(refused.code(), StatusCode::kUsage) << refused.to_string();
    EXPECT_EQ(fleet.save_inference_model(target("model"), {"dense"}, {"dense"}).code(),
              StatusCode::kUsage);
    check(fleet.save_persistables(target("saved", Replace::kYes)));
  });
}

TEST_F(TablesSaving, WhatIsWrongIsNamed) {
  Fleet server;
  ctr_job::prepare(server, ctr_job::role_of(Role::kServer, 1, endpoints(2)), true, Adam{});
  EXPECT_THAT(server.init_server_from(at("saved"), {"fc_0.w_0"}).message(),
              HasSubstr("'fc_0.w_0' is not a sparse table of the job, which has [emb]"));
  EXPECT_EQ(server.init_server_from(at("nowhere")).code(), StatusCode::kNotFound);
  EXPECT_THAT(server.init_server_from(at("model")).to_string(), HasSubstr("000/layout"));
  ps::InprocTransport way;
  EXPECT_THAT(server.run_server(way).message(), HasSubstr("call init_server() first"));

  const std::string part = at("saved/001/part-001.rows");
  std::string bytes = millrace::testing::bytes_of(part);
  bytes[bytes.size() / 2] ^= 1;
  check(write_file_atomically(part, bytes, Replace::kYes));
  const Status damaged = server.init_server_from(at("saved"));
  EXPECT_EQ(damaged.code(), StatusCode::kInvalidData) << damaged.to_string();
  EXPECT_THAT(damaged.to_string(), HasSubstr("part-001.rows"));
  fs::remove(part);
  EXPECT_EQ(server.init_server_from(at("saved")).code(), StatusCode::kNotFound);
  check(server.init_server_from(at("saved"), {"emb"}));

  Fleet worker;
  ctr_job::prepare(worker, ctr_job::role_of(Role::kWorker, 0, endpoints(2)), true);
  for (const Status& status :
       {worker.save_persistables(target("a")), worker.save_inference_model(target("b"), {}, {}),
        worker.load_model(target("saved")), worker.barrier_worker()})
    EXPECT_THAT(status.message(), HasSubstr("call init_worker() first"));
  EXPECT_THAT(worker.init_server_from(at("saved")).message(), HasSubstr("expected a server"));
}

// The state after a crash while a save replaces an older one.
TEST_F(TablesSaving, PartsOfTwoSavesAreNotTakenTogether) {
  SavedTables job;
  job.files_root = folder_.path();
  std::vector<float> ignored;
  job.run([&](Fleet& fleet, int worker) {
    train(fleet, worker, 0, 4, ignored);
    check(fleet.save_persistables(target("other")));
    check(fleet.barrier_worker());
  });
  for (const std::string table : {"000", "001"}) {
    const std::string part = table + "/part-001.rows";
    const std::string good = millrace::testing::bytes_of(at("saved/" + part));
    fs::copy_file(at("other/" + part), at("saved/" + part), fs::copy_options::overwrite_existing);
    Fleet server;
    ctr_job::prepare(server, ctr_job::role_of(Role::kServer, 1, endpoints(2)), true, Adam{});
    const Status mixed = server.init_server_from(at("saved"));
    EXPECT_EQ(mixed.code(), StatusCode::kInvalidData) << mixed.to_string();
    EXPECT_THAT(mixed.to_string(), HasSubstr(part));
    EXPECT_THAT(mixed.to_string(), HasSubstr("by " + at("saved.manifest.json")));
    check(write_file_atomically(at("saved/" + part), good, Replace::kYes));
  }
  // without a manifest files are loaded unchecked
  fs::remove(at("saved.manifest.json"));
  fs::copy_file(at("other/000/part-001.rows"), at("saved/000/part-001.rows"),
                fs::copy_options::overwrite_existing);
  Fleet server;
  ctr_job::prepare(server, ctr_job::role_of(Role::kServer, 1, endpoints(2)), true, Adam{});
  check(server.init_server_from(at("saved")));
}

TEST_F(TablesSaving, ServersWriteOnlyWhereTheyMay) {
  SavedTables job;  // no folder is allowed
  job.run([&](Fleet& fleet, int worker) {
    if (worker != 0) return;
    const Status refused = fleet.save_persistables(target("other"));
    EXPECT_THAT(refused.message(), HasSubstr("no folder was allowed"));
  });
  job.files_root = folder_.path();
  job.run([&](Fleet& fleet, int worker) {
    if (worker != 0) return;
    EXPECT_FALSE(fleet.save_persistables(target("../other")).ok());
    EXPECT_FALSE(fleet.worker()->table_client().save(0, "../other", 0, false).ok());
    EXPECT_FALSE(fleet.worker()->table_client().load(0, "/tmp").ok());
  });
}

TEST_F(TablesSaving, ServersAgreeOnWhatTheyHaveLoaded) {
  const auto way = std::make_shared<ps::InprocTransport>();
  std::vector<std::unique_ptr<Fleet>> servers;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    servers.push_back(std::make_unique<Fleet>());
    Fleet& server = *servers.back();
    ctr_job::prepare(server, ctr_job::role_of(Role::kServer, i, endpoints(2)), true, Adam{});
    check(i == 0 ? server.init_server_from(at("saved")) : server.init_server());
    threads.emplace_back([&server, way] { check(server.run_server(*way)); });
  }
  Fleet worker;
  ctr_job::prepare(worker, ctr_job::role_of(Role::kWorker, 0, endpoints(2)), true, Adam{});
  EXPECT_THAT(worker.init_worker(way).to_string(),
              HasSubstr("1 of 2 servers have loaded dense parameters"));
  for (const auto& server : servers) server->stop_server();
  for (std::thread& thread : threads) thread.join();
}

TEST(GeoSaving, WaitsForTheEndOfTraining) {
  millrace::testing::TempFolder folder;
  const auto way = std::make_shared<ps::InprocTransport>();
  const auto prepare = [](Fleet& fleet, Role role) {
    check(fleet.init(ctr_job::role_of(role, 0, endpoints(1), 1)));
    DistributedStrategy strategy;
    strategy.set_a_sync(true);
    check(strategy.set_a_sync_configs({{"k_steps", ConfigValue(int64_t{1})}}));
    MinimizeOptions optimizer;
    optimizer.learning_rate = 0.1;
    check(fleet.distributed_optimizer(optimizer, strategy));
    check(fleet.minimize(*ops::standard_registry(), *ctr_job::program_of("origin_main.pb"),
                         *ctr_job::program_of("origin_startup.pb"), ctr_job::loss_name()));
  };
  Fleet server;
  prepare(server, Role::kServer);
  ps::ServerOptions service;
  service.files_root = folder.path();
  check(server.init_server({}, service));
  std::thread serving([&] { check(server.run_server(*way)); });
  Fleet worker;
  prepare(worker, Role::kWorker);
  check(worker.init_worker(way));
  std::vector<Value> results(1);
  check(worker.step(ctr_job::feeds_of(0, 0), {ctr_job::loss_name()}, results));
  EXPECT_EQ(results.size(), 1U);
  const FleetSaveTarget to{folder.path(), "saved", Replace::kNo, 0};
  EXPECT_EQ(worker.save_persistables(to).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(worker.load_model(to).code(), StatusCode::kUnimplemented);
  check(worker.wait_for_all());
  check(worker.save_persistables(to));
  EXPECT_THAT(worker.worker()->table_client().load(0, "saved").message(),
              HasSubstr("loading geo table 0 while the job runs"));
  check(worker.stop_worker());
  serving.join();
  EXPECT_TRUE(fs::exists(folder / "saved/000/part-000.rows"));
  Fleet next;
  prepare(next, Role::kServer);
  check(next.init_server_from(folder / "saved"));
}

// A worker that waits for a lost worker gets an error long before the deadline of its call.
TEST(FleetServing, AWorkerThatNeverComesEndsTheJob) {
  const std::vector<std::string> servers = ctr_job::free_endpoints(1);
  Fleet server;
  ctr_job::prepare(server, ctr_job::role_of(Role::kServer, 0, servers), true);
  ps::ServerOptions service;
  service.start_timeout = std::chrono::milliseconds(1500);
  check(server.init_server({}, service));
  Fleet worker;
  ctr_job::prepare(worker, ctr_job::role_of(Role::kWorker, 0, servers), true);
  std::thread serving([&] {
    const Status ended = server.run_server(*ctr_job::tcp());
    EXPECT_EQ(ended.code(), StatusCode::kDistributed);
    EXPECT_THAT(ended.message(), HasSubstr("trainer 1"));
  });
  ps::ClientOptions client;
  client.deadline = std::chrono::seconds(120);
  const auto begin = std::chrono::steady_clock::now();
  ps::GrpcOptions wire;
  wire.reconnect_timeout = std::chrono::milliseconds(500);
  auto transport = ps::make_tcp_transport(wire);
  ASSERT_TRUE(transport.ok()) << transport.status().to_string();
  check(worker.init_worker(*std::move(transport), nullptr, client));
  std::vector<Value> results;
  EXPECT_EQ(worker.step(ctr_job::feeds_of(0, 0), {}, results).code(), StatusCode::kDistributed);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  serving.join();
}

}  // namespace
}  // namespace millrace::fleet
