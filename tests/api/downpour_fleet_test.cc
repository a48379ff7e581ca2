// DownpourSGD jobs by the installed library: tables follow the settings of the strategy, the model
// has the rows of the servers, and what such a job cannot do is refused.

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/dataset.h"
#include "api/executor.h"
#include "api/fleet.h"
#include "api/persistables.h"
#include "api/program.h"
#include "tests/api/nets.h"
#include "tests/io/temp_folder.h"

namespace millrace::api {
namespace downpour_fleet_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kIds = 20;
constexpr int64_t kWidth = 3;
constexpr int kDownpourSteps = 6;
constexpr double kRate = 0.5;
constexpr double kFirstSquares = 4;

// The sum of looked-up rows and of w: gradients of rows are 1, those of w are the inputs.
struct SummedRows {
  SummedRows() {
    const VarRef ids = net.data("ids", {-1, 1}, DType::kInt64);
    const VarRef rows = layers::embedding(ids, kIds, kWidth, {.is_sparse = true});
    const VarRef dense = layers::fc(net.data("x", {-1, 1}), 1, {.has_bias = false});
    looked_up = rows.name();
    loss = layers::elementwise_add(layers::reduce_sum(rows), layers::reduce_sum(dense)).name();
    check(net.status());
    ProgramEditor editor(net.main());
    check(editor.set_attr(value_of(editor.ops(0)).front(), {"is_distributed", true}));
    main = editor.program();
  }
  Network net{/*random_seed=*/1};
  ProgramPtr main;
  std::string looked_up;
  std::string loss;
};

DownpourStrategy summed_strategy() {
  return {.sparse_configs = {{"sparse_embedx_dim", kWidth - 1},
                             {"sparse_embedx_threshold", int64_t{0}},
                             {"sparse_initial_range", 0.0},
                             {"sparse_learning_rate", kRate},
                             {"sparse_initial_g2sum", kFirstSquares}},
          .dense_configs = {{"dense_optimizer", std::string("naive")}, {"dense_naive_lr", 0.25}}};
}

Fleet process(const Connection& connection, bool is_server, const SummedRows& net,
              const DownpourStrategy& strategy = summed_strategy()) {
  Fleet fleet(connection);
  check(fleet.init({.is_server = is_server, .server_endpoints = {"a:1"}}));
  check(fleet.distributed_optimizer(strategy));
  check(fleet.minimize(*net.main, net.net.startup(), net.loss));
  return fleet;
}

// Rows 0 to 3 are looked up, each once in every step.
std::string summed_lines() {
  std::string text;
  for (int step = 0; step < kDownpourSteps; ++step) {
    for (int id = 0; id < 4; ++id) text += "1 " + std::to_string(id) + " 1 1\n";
  }
  return text;
}

TEST(ApiDownpour, TrainsFromFilesByTheRulesOfItsTables) {
  const testing::TempFolder folder;
  testing::put_file(folder / "part-0", summed_lines());
  const SummedRows net;
  const Connection connection = Connection::in_process();
  Fleet server = process(connection, true, net);
  check(server.init_server({}, {}, {}, {.files_root = folder.path()}));
  std::thread serving([&] { check(server.run_server()); });
  Fleet worker = process(connection, false, net);
  check(worker.init_worker({.wait_for_servers = std::nullopt}));
  const std::string w = "fc_0.w_0";
  const float first = value_of(worker.get(w)).values<float>()[0];
  Dataset data = value_of(Dataset::create(
      *net.main, {.files = {folder / "part-0"}, .use_vars = {"ids", "x"}, .batch_size = 4}));
  const EpochResult done = value_of(worker.train_from_dataset(data, {.fetches = {net.loss}}));
  EXPECT_EQ(done.examples, 4 * kDownpourSteps);
  check(worker.wait_for_all());
  EXPECT_NEAR(value_of(worker.get(w)).values<float>()[0], first - 0.25 * 4 * kDownpourSteps, 1e-4);
  check(worker.save_inference_model({.root = folder.path(), .folder = "model"}, {"ids"},
                                    {net.looked_up}));
  check(worker.stop_worker());
  serving.join();
  double weight = 0;  // adagrad of gradients of 1
  for (int step = 0; step < kDownpourSteps; ++step)
    weight -= kRate * std::sqrt(kFirstSquares / (kFirstSquares + step));
  const Scope scope;
  const InferenceModel model = value_of(load_inference_model(folder / "model", scope));
  Executor executor = value_of(Executor::create());
  const std::vector<int64_t> ids{0, 3, 4};
  const Arrays rows =
      value_of(executor.run(*model.program, scope, {{"ids", Array::of<int64_t>({3, 1}, ids)}}));
  const auto found = rows.begin()->second.values<float>();
  ASSERT_EQ(found.size(), size_t{9});
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(found[i], weight, 1e-5) << i;
  for (size_t i = 6; i < 9; ++i) EXPECT_EQ(found[i], 0) << i;  // was never looked up
}

TEST(ApiDownpour, DescribesItsTables) {
  const SummedRows net;
  const Connection connection = Connection::in_process();
  const FleetDescription made = value_of(process(connection, true, net).description());
  EXPECT_THAT(made.tables, HasSubstr("accessor_class: \"SparseAccessor\""));
  EXPECT_THAT(made.runtime, HasSubstr("communicator_is_sgd_optimizer"));
  EXPECT_THAT(made.fleet_desc, HasSubstr("initial_g2sum: 4"));
  EXPECT_THAT(made.fleet_desc, Not(HasSubstr("PROGRAM_0")));
  EXPECT_THAT(made.opt_info, HasSubstr("\"device_worker\": \"DownpourSGD\""));
  DownpourStrategy more = summed_strategy();
  more.program_config_messages = true;
  more.datanorm_configs = {{"datanorm_decay_rate", 0.5}};
  const Fleet worker = process(connection, false, net, more);
  EXPECT_THAT(value_of(worker.description()).fleet_desc, HasSubstr("PROGRAM_0"));
  std::string remarks;
  for (const std::string& remark : worker.remarks()) remarks += remark + "\n";
  EXPECT_THAT(remarks, HasSubstr("datanorm_configs have no effect"));
  EXPECT_THAT(remarks, HasSubstr("no shows that divide their gradients"));
  DownpourStrategy given;
  given.fleet_desc = made.fleet_desc;
  EXPECT_THAT(value_of(process(connection, true, net, given).description()).fleet_desc,
              HasSubstr("initial_g2sum: 4"));
}

TEST(ApiDownpour, RefusesWhatItsTablesCannotDo) {
  const SummedRows net;
  Fleet fleet(Connection::in_process());
  EXPECT_THAT(fleet.distributed_optimizer(DownpourStrategy{}).message(),
              HasSubstr("call init() first"));
  check(fleet.init({.server_endpoints = {"a:1"}}));
  const auto refused = [&](StatusCode code, const char* words, auto change) {
    DownpourStrategy strategy = summed_strategy();
    change(strategy);
    Status status = fleet.distributed_optimizer(strategy);
    if (status.ok()) status = fleet.minimize(*net.main, net.net.startup(), net.loss);
    EXPECT_EQ(status.code(), code) << words;
    EXPECT_THAT(status.message(), HasSubstr(words));
    EXPECT_EQ(fleet.main_program(), nullptr);
  };
  refused(StatusCode::kUnimplemented, "(window) 2", [](auto& s) { s.window = 2; });
  refused(StatusCode::kInvalidArgument, "window: expected at least 1",
          [](auto& s) { s.window = 0; });
  refused(StatusCode::kInvalidArgument, "learning_rate", [](auto& s) { s.learning_rate = 0.5; });
  refused(StatusCode::kInvalidArgument, "fea_dim 11, expected 5",
          [](auto& s) { s.sparse_configs = {}; });
  refused(StatusCode::kInvalidArgument, "sparse_embedx_dimm",
          [](auto& s) { s.sparse_configs["sparse_embedx_dimm"] = int64_t{2}; });
  refused(StatusCode::kInvalidArgument, "fea_dim", [](auto& s) { s.use_cvm = true; });
  refused(StatusCode::kUnimplemented, "statistics of data_norm",
          [](auto& s) { s.data_norm_names = {".w_0"}; });
}

// The last call of distributed_optimizer() counts.
TEST(ApiDownpour, AnotherStrategyTakesItsPlace) {
  const SummedRows net;
  Fleet fleet = process(Connection::in_process(), true, net);
  EXPECT_NE(value_of(fleet.description()).opt_info, "");
  check(fleet.distributed_optimizer({.learning_rate = 0.1}, FleetStrategy{}));
  ProgramEditor editor(*net.main);
  const auto lookup = value_of(editor.ops(0)).front();
  check(editor.set_attr(lookup, {"is_distributed", false}));
  check(editor.set_attr(lookup, {"remote_prefetch", true}));
  check(fleet.minimize(*editor.program(), net.net.startup(), net.loss));
  EXPECT_EQ(value_of(fleet.description()).opt_info, "");
}

}  // namespace
}  // namespace downpour_fleet_test
}  // namespace millrace::api
