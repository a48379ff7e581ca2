// A job of the fleet API by the installed library, compared with fleet::Fleet.

#include "api/fleet.h"

#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/dataset.h"
#include "api/executor.h"
#include "api/persistables.h"
#include "executor/array_values.h"
#include "fleet/fleet.h"
#include "framework/program.h"
#include "framework/program_file.h"
#include "ops/registry.h"
#include "ps/transport/inproc.h"
#include "tests/api/nets.h"
#include "tests/io/temp_folder.h"

namespace millrace::api {
namespace {

namespace fs = std::filesystem;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kFleetSteps = 5;
constexpr const char* kFolder = "tests/data/fleet/ctr_sync_sgd/";

std::shared_ptr<const Program> read(const char* name) {
  return value_of(load_program(std::string(kFolder) + name));
}

std::string ctr_loss() {
  return read("origin_main.pb")->root().back().output_names()[0].str();
}

Arrays ctr_batch(int step) {
  constexpr int64_t kRows = 8;
  Arrays feeds;
  for (const char* const name : {"emb_slot0", "emb_slot1", "label"}) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < kRows; ++i)
      ids.push_back(name[0] == 'l' ? i % 2 : (i * 37 + step * 5) % 500);
    feeds[name] = Array::of<int64_t>({kRows, 1}, ids);
  }
  std::vector<float> dense;
  for (int64_t i = 0; i < kRows * 4; ++i) dense.push_back((i / 4) % 2 == 0 ? 1.0F : -1.0F);
  feeds["dense"] = Array::of<float>({kRows, 4}, dense);
  return feeds;
}

MinimizeOptions optimizer() {
  return {.method = Sgd{}, .learning_rate = 0.1};
}

// A process of the job, up to its programs.
Fleet prepared(const Connection& connection, bool is_server) {
  Fleet fleet(connection);
  check(fleet.init({.is_server = is_server, .server_endpoints = {"a:1"}}));
  check(fleet.distributed_optimizer(optimizer(), {.a_sync = false}));
  check(fleet.minimize(*read("origin_main.pb"), *read("origin_startup.pb"), ctr_loss()));
  return fleet;
}

std::vector<float> losses_of_internal_fleet() {
  const auto transport = std::make_shared<ps::InprocTransport>();
  const auto prepare = [](fleet::Fleet& fleet, fleet::Role role) {
    check(fleet.init(value_of(fleet::user_defined_role({.current_id = 0,
                                                        .role = role,
                                                        .worker_num = 1,
                                                        .server_endpoints = {"a:1"},
                                                        .worker_endpoints = {}}))));
    fleet::DistributedStrategy strategy;
    strategy.set_a_sync(false);
    check(fleet.distributed_optimizer(optimizer(), strategy));
    check(fleet.minimize(*ops::standard_registry(), *read("origin_main.pb"),
                         *read("origin_startup.pb"), ctr_loss()));
  };
  std::thread serving([&] {
    fleet::Fleet server;
    prepare(server, fleet::Role::kServer);
    check(server.init_server());
    check(server.run_server(*transport));
  });
  fleet::Fleet worker;
  prepare(worker, fleet::Role::kWorker);
  check(worker.init_worker(transport));
  std::vector<float> losses;
  for (int step = 0; step < kFleetSteps; ++step) {
    executor::NamedValues feeds;
    check(executor::to_values(ctr_batch(step), feeds));
    std::vector<Value> results(1);
    check(worker.step(feeds, {ctr_loss()}, results));
    losses.push_back(results[0].get_if<Tensor>()->data<float>()[0]);
  }
  check(worker.stop_worker());
  serving.join();
  return losses;
}

TEST(ApiFleet, TrainsLikeTheInnerFleetAndSaves) {
  const std::string folder = ::testing::TempDir() + "/api_fleet";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const Connection connection = Connection::in_process();
  std::thread serving([&] {
    Fleet server = prepared(connection, /*is_server=*/true);
    check(server.init_server({}, {}, {}, {.files_root = folder}));
    check(server.run_server());
  });
  Fleet worker = prepared(connection, /*is_server=*/false);
  EXPECT_NE(worker.main_program(), nullptr);
  EXPECT_NE(worker.startup_program(), nullptr);
  check(worker.init_worker({.wait_for_servers = std::nullopt}));
  std::vector<float> losses;
  for (int step = 0; step < kFleetSteps; ++step)
    losses.push_back(
        value_of(worker.step(ctr_batch(step), {ctr_loss()})).at(ctr_loss()).values<float>()[0]);
  EXPECT_EQ(losses, losses_of_internal_fleet());
  check(worker.barrier_worker());
  check(worker.wait_for_all());
  const FleetFolder to{.root = folder, .folder = "model"};
  check(
      worker.save_inference_model(to, {"emb_slot0", "emb_slot1", "dense", "label"}, {ctr_loss()}));
  EXPECT_EQ(worker.save_inference_model(to, {"emb_slot0"}, {ctr_loss()}).ok(), false);
  check(worker.save_persistables({.root = folder, .folder = "all"}));
  check(worker.stop_worker());
  serving.join();
  const Scope scope;
  const InferenceModel model = value_of(load_inference_model(folder + "/model", scope));
  Executor executor = value_of(Executor::create());
  const Arrays results = value_of(executor.run(*model.program, scope, ctr_batch(0)));
  EXPECT_LT(results.begin()->second.values<float>()[0], losses.front());
  fs::remove_all(folder);
}

TEST(ApiFleet, SaysWhichCallIsMissing) {
  Fleet fleet(Connection::in_process());
  EXPECT_FALSE(fleet.role().ok());
  EXPECT_EQ(fleet.main_program(), nullptr);
  EXPECT_EQ(fleet.get("w").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(fleet.init({.id = 1, .server_endpoints = {"a:1"}}).ok());
  check(fleet.init({.worker_num = 2, .server_endpoints = {"a:1", "b:1"}}));
  const FleetRole role = value_of(fleet.role());
  EXPECT_TRUE(role.is_first_worker());
  EXPECT_EQ(role.worker_num, 2);
  EXPECT_THAT(value_of(fleet.split_files({"a", "b", "c"})), ::testing::ElementsAre("a", "b"));
  EXPECT_THAT(fleet.step({}).status().message(), HasSubstr("call minimize() first"));
  EXPECT_THAT(fleet.run_server().message(), HasSubstr("call minimize() first"));
  EXPECT_THAT(
      fleet.distributed_optimizer({}, {.a_sync_configs = {{"k_stepz", int64_t{1}}}}).to_string(),
      HasSubstr("k_stepz"));
  EXPECT_FALSE(
      fleet
          .distributed_optimizer({}, {.a_sync = false, .a_sync_configs = {{"k_steps", int64_t{5}}}})
          .ok());
  EXPECT_THAT(fleet.init_server({}, {"emb"}).message(), HasSubstr("tables need a folder"));
  EXPECT_THAT(fleet.init_server({}, {}, {}, {.endpoint = "a:1"}).message(),
              HasSubstr("service.endpoint"));
}

// The batches of ctr_batch() as MultiSlot text.
std::string ctr_lines(int steps) {
  std::string text;
  for (int step = 0; step < steps; ++step) {
    const Arrays feeds = ctr_batch(step);
    for (size_t row = 0; row < 8; ++row) {
      for (const char* const name : {"emb_slot0", "emb_slot1", "label"})
        text += "1 " + std::to_string(feeds.at(name).values<int64_t>()[row]) + " ";
      text += "4";
      for (size_t i = 0; i < 4; ++i)
        text += feeds.at("dense").values<float>()[row * 4 + i] > 0 ? " 1" : " -1";
      text += "\n";
    }
  }
  return text;
}

TEST(ApiFleet, TrainsFromADataset) {
  const testing::TempFolder folder;
  testing::put_file(folder / "part-0", ctr_lines(kFleetSteps));
  const Connection connection = Connection::in_process();
  Fleet server = prepared(connection, true);
  check(server.init_server());
  std::thread serving([&] { check(server.run_server()); });
  Fleet worker = prepared(connection, false);
  Dataset data = value_of(Dataset::create(*read("origin_main.pb"),
                                          {.files = {folder / "part-0"},
                                           .use_vars = {"emb_slot0", "emb_slot1", "label", "dense"},
                                           .batch_size = 8}));
  EXPECT_EQ(worker.train_from_dataset(data, {}).status().code(), StatusCode::kInvalidArgument);
  check(worker.init_worker({.wait_for_servers = std::nullopt}));
  std::vector<float> losses;
  EpochOptions how{.fetches = {ctr_loss()}, .print_period = 1};
  how.on_print = [&](const EpochStep& step) {
    losses.push_back(step.fetches.at(ctr_loss()).values<float>()[0]);
    return Ok();
  };
  const EpochResult done = value_of(worker.train_from_dataset(data, how));
  EXPECT_EQ(done.examples, 8 * kFleetSteps);
  check(worker.stop_worker());
  serving.join();
  EXPECT_EQ(losses, losses_of_internal_fleet());
}

TEST(ApiFleet, DumpsOfADatasetAreRefused) {
  const testing::TempFolder folder;
  testing::put_file(folder / "part-0", ctr_lines(1));
  Fleet worker(Connection::in_process());
  check(worker.init({.server_endpoints = {"a:1"}}));
  check(worker.distributed_optimizer(
      optimizer(), {.trainer_desc_configs = {{"dump_fields", std::vector<std::string>{"dense"}}}}));
  Dataset data = value_of(Dataset::create(
      *read("origin_main.pb"),
      {.files = {folder / "part-0"}, .use_vars = {"emb_slot0", "emb_slot1", "label", "dense"}}));
  const Status status = worker.train_from_dataset(data, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("dump_fields"));
}

// The end of a day drops all rows, which then begin again.
TEST(ApiFleet, AJobOfTheFirstFleetWithTypedTablesEndsItsDays) {
  TranspilerStrategy strategy = TranspilerStrategy::sync();
  strategy.sparse_tables = R"({"emb": {"accessor_class": "CtrCommonAccessor", "zero_init": false,
                                       "delete_threshold": 1e9}})";
  const Connection connection = Connection::in_process();
  const auto prepare = [&](bool is_server) {
    Fleet fleet(connection);
    check(fleet.init({.is_server = is_server, .server_endpoints = {"a:1"}}));
    check(fleet.distributed_optimizer(optimizer(), strategy));
    check(fleet.minimize(*read("origin_main.pb"), *read("origin_startup.pb"), ctr_loss()));
    return fleet;
  };
  std::thread serving([&] {
    Fleet server = prepare(true);
    check(server.init_server());
    check(server.run_server());
  });
  Fleet worker = prepare(false);
  check(worker.init_worker({.wait_for_servers = std::nullopt}));
  std::string rows;
  const std::shared_ptr<const Program> main = worker.main_program();
  for (const Op& op : main->root().ops()) {
    if (op.type() == "distributed_lookup_table") rows = op.first_output("Outputs").str();
  }
  const auto look_up = [&] {
    const Arrays found = value_of(worker.step(ctr_batch(0), {rows}));
    const auto values = found.at(rows).values<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> first = look_up();
  EXPECT_NE(look_up(), first);
  check(worker.shrink());
  EXPECT_EQ(look_up(), first);
  check(worker.stop_worker());
  serving.join();
}

}  // namespace
}  // namespace millrace::api
