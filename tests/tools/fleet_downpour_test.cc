// Jobs of transpile-program --downpour, run by the tools: rules against their formulas, what is
// described, and what is refused.

#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "io/npz.h"
#include "tests/support/process.h"
#include "tests/tools/ctr_folder.h"

namespace millrace::tools {
namespace {

using ::testing::HasSubstr;

constexpr int kDownpourSteps = 12;
constexpr int kDownpourRows = 12;

// Gradients do not depend on parameters: 1 for each lookup, the sum of x for the weights.
constexpr const char* kDownpourMain = R"(# millrace program 1

block 0 {
  param emb: f32(12, 3)
  param w: f32(2, 1)
  var ids: i64(-1, 1)
  var x: f32(-1, 2)
  var e: f32(-1, 3)
  var h: f32(-1, 1)
  var rows: f32(1)
  var dense: f32(1)
  var loss: f32(1)
  lookup_table Ids=ids W=emb -> Out=e {is_sparse: true, is_distributed: true, padding_idx: -1l}
  reduce_sum X=e -> Out=rows {reduce_all: true}
  mul X=x Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}
  reduce_sum X=h -> Out=dense {reduce_all: true}
  sum X=rows, dense -> Out=loss
}
)";
constexpr const char* kDownpourStartup = R"(# millrace program 1

block 0 {
  persist emb: f32(12, 3)
  persist w: f32(2, 1)
  fill_constant -> Out=emb {shape: [12l, 3l], value: 100.0, dtype: 5}
  fill_constant -> Out=w {shape: [2l, 1l], value: 10.0, dtype: 5}
}
)";

// Rows start with zeros and all of their weights.
constexpr const char* kDownpourSparse =
    R"("sparse_configs": {"sparse_embedx_dim": 2, "sparse_embedx_threshold": 0,
                          "sparse_initial_range": 0, "sparse_learning_rate": 0.5,
                          "sparse_initial_g2sum": 4})";

NamedValues downpour_feeds(int step) {
  NamedValues feeds;
  auto& ids = feeds["ids"].as<Tensor>();
  auto& x = feeds["x"].as<Tensor>();
  check(ids.resize(DType::kInt64, {3, 1}));
  check(x.resize(DType::kFloat32, {3, 2}));
  for (int i = 0; i < 3; ++i) ids.data<int64_t>()[i] = (step * 5 + i * 4) % kDownpourRows;
  for (int i = 0; i < 6; ++i) x.data<float>()[i] = static_cast<float>((step * 2 + i) % 5 - 1);
  return feeds;
}

// The gradient of w in a step.
std::vector<double> dense_gradient(int step) {
  std::vector<double> sum(2, 0);
  for (int i = 0; i < 6; ++i) sum[static_cast<size_t>(i % 2)] += (step * 2 + i) % 5 - 1;
  return sum;
}

// Every row is looked up in the same number of steps, with a gradient of ones.
double adagrad_weight() {
  double weight = 0;
  double squares = 0;
  for (int i = 0; i < kDownpourSteps * 3 / kDownpourRows; ++i) {
    weight -= 0.5 * std::sqrt(4 / (4 + squares));
    squares += 1;
  }
  return weight;
}

class FleetDownpour : public CtrFolder {
 protected:
  void SetUp() override {
    CtrFolder::SetUp();
    write("main.prog", kDownpourMain);
    write("startup.prog", kDownpourStartup);
    for (const auto& [file, prefix] : {std::pair("feeds.npz", "t0/"), {"feeds_0.npz", ""}}) {
      NamedValues all;
      for (int step = 0; step < kDownpourSteps; ++step) {
        for (auto& [name, value] : downpour_feeds(step))
          all[fmt::format("{}step{}/{}", prefix, step, name)] = std::move(value);
      }
      write(file, *io::npz_bytes(all));
    }
  }

  // \param members  of the file of --downpour, besides losses and sparse_configs
  Ended transpile(const std::string& members, const std::string& sparse = kDownpourSparse) {
    write("downpour.json", fmt::format(R"({{"losses": ["loss"], {}{}}})", sparse, members));
    return run("transpile-program",
               {"--program", at("main.prog"), "--startup", at("startup.prog"), "--downpour",
                at("downpour.json"), "-o", at("job"), "--force"});
  }

  Arrays train_in_one_process(const std::string& members) {
    const Ended made =
        transpile(R"(, "pservers": "127.0.0.1:7201,127.0.0.1:7202", "trainers": 1)" + members);
    EXPECT_EQ(made.code, 0) << made.output;
    succeed("run-program",
            {"--cluster", "inproc", "--transpiled", at("job"), "--feed-steps", at("feeds.npz"),
             "--steps", std::to_string(kDownpourSteps), "--fetch", "loss", "--output",
             at("losses.npz"), "--save-persistables", at("after.npz"), "--force", "-q"});
    return floats_in(at("after.npz"));
  }
};

void expect_rows(const Arrays& after) {
  const std::vector<float>& rows = after.at("emb");
  ASSERT_EQ(rows.size(), size_t{kDownpourRows} * 3);
  for (const float weight : rows) EXPECT_NEAR(weight, adagrad_weight(), 1e-5);
}

TEST_F(FleetDownpour, NaiveDenseTablesAndAdagradRowsFollowTheirFormulas) {
  const Arrays after = train_in_one_process(R"(, "dense_configs": {"dense_optimizer": "naive",
                                                  "dense_naive_lr": 0.25})");
  expect_rows(after);
  std::vector<double> w(2, 10);
  for (int step = 0; step < kDownpourSteps; ++step) {
    for (size_t k = 0; k < 2; ++k) w[k] -= 0.25 * dense_gradient(step)[k];
  }
  for (size_t k = 0; k < 2; ++k) EXPECT_NEAR(after.at("w")[k], w[k], 1e-4);
}

// A step of adam of the original's dense tables, whose decays are those of the settings.
TEST_F(FleetDownpour, AdamOfDenseTablesHasTheDecaysOfItsSettings) {
  const Arrays after = train_in_one_process(
      R"(, "dense_configs": {"dense_learning_rate": 0.125, "dense_ada_decay": 0.75,
                             "dense_ada_epsilon": 0.001, "dense_mom_decay": 0.5})");
  expect_rows(after);
  for (size_t k = 0; k < 2; ++k) {
    double w = 10;
    double weights = 0;
    double squares = 0;
    double velocity = 0;
    for (int step = 0; step < kDownpourSteps; ++step) {
      const double grad = dense_gradient(step)[k];
      weights = weights * 0.75 + 1;
      squares = squares * 0.75 + grad * grad;
      velocity = (velocity + grad) * 0.5 - grad;
      const double smooth = weights * 0.001;
      w += 0.125 * velocity * std::sqrt((weights + smooth) / (squares + smooth));
    }
    EXPECT_NEAR(after.at("w")[k], w, 1e-4);
  }
}

// Bounds of 10 are a default of settings, not of descriptions.
TEST_F(FleetDownpour, ADescriptionWithoutBoundsHasNone) {
  write("tables.txt", R"(server_param { downpour_server_param { downpour_table_param {
    table_id: 0 table_class: "DownpourSparseTable" type: PS_SPARSE_TABLE
    accessor { accessor_class: "DownpourCtrAccessor" fea_dim: 5 embedx_dim: 2 embedx_threshold: 0
      sparse_sgd_param { learning_rate: 50 initial_g2sum: 4 initial_range: 0 } } } } })");
  const Ended made = transpile(
      fmt::format(R"("fleet_desc_file": "{}", "pservers": "127.0.0.1:7201", "trainers": 1)",
                  at("tables.txt")),
      "");
  ASSERT_EQ(made.code, 0) << made.output;
  succeed("run-program",
          {"--cluster", "inproc", "--transpiled", at("job"), "--feed-steps", at("feeds.npz"),
           "--steps", std::to_string(kDownpourSteps), "--save-persistables", at("after.npz"),
           "--fetch", "loss", "--output", at("losses.npz"), "-q"});
  const Arrays after = floats_in(at("after.npz"));
  for (const float weight : after.at("emb")) EXPECT_NEAR(weight, 100 * adagrad_weight(), 1e-3);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

TEST_F(FleetDownpour, RowsBeginWithShowAndClickIfAsked) {
  write("main.prog", replaced(replaced(kDownpourMain, "(12, 3)", "(12, 5)"), "(-1, 3)", "(-1, 5)"));
  write("startup.prog", replaced(replaced(kDownpourStartup, "(12, 3)", "(12, 5)"), "3l]", "5l]"));
  const Arrays after = train_in_one_process(R"(, "use_cvm": true)");
  const std::vector<float>& rows = after.at("emb");
  ASSERT_EQ(rows.size(), size_t{kDownpourRows} * 5);
  for (size_t i = 0; i < rows.size(); ++i) {
    const double wanted = i % 5 == 0 ? kDownpourSteps * 3 / kDownpourRows : 0;
    EXPECT_NEAR(rows[i], i % 5 < 2 ? wanted : adagrad_weight(), 1e-5) << i;
  }
}

TEST_F(FleetDownpour, ProcessesOverTcpTrainAsOneProcessDoes) {
  const std::string naive =
      R"(, "dense_configs": {"dense_optimizer": "naive", "dense_naive_lr": 0.25})";
  const Arrays wanted = train_in_one_process(naive);
  const std::string list = spawn::free_endpoints(2);
  const Ended made = transpile(fmt::format(R"(, "pservers": "{}", "trainers": 1)", list) + naive);
  ASSERT_EQ(made.code, 0) << made.output;
  std::vector<std::unique_ptr<spawn::Process>> processes;
  for (int i = 0; i < 2; ++i)
    processes.push_back(std::make_unique<spawn::Process>(Words{
        spawn::tool("pserver"), "--program", at(fmt::format("job/pserver_{}/__model__", i))}));
  processes.push_back(std::make_unique<spawn::Process>(
      Words{spawn::tool("run-program"), "--role", "trainer", "--trainer-id", "0", "--transpiled",
            at("job"), "--feed-steps", at("feeds_0.npz"), "--steps", std::to_string(kDownpourSteps),
            "--save-persistables", at("tcp.npz"), "--fetch", "loss", "--output", at("out.npz")}));
  for (const auto& process : processes)
    EXPECT_EQ(process->wait(kTimeoutMs), 0) << process->output();
  EXPECT_EQ(floats_in(at("tcp.npz")), wanted);
}

// Both trainers read all lines; gradients of w are sums of whole numbers in any order.
TEST_F(FleetDownpour, TrainersReadFilesUnderLaunch) {
  const std::string list = spawn::free_endpoints(2);
  const Ended made = transpile(fmt::format(R"(, "pservers": "{}", "trainers": 2,
                     "dense_configs": {{"dense_optimizer": "naive", "dense_naive_lr": 0.25}})",
                                           list));
  ASSERT_EQ(made.code, 0) << made.output;
  std::string lines;
  for (int i = 0; i < kDownpourRows; ++i) lines += fmt::format("1 {} 2 1 2\n", i);
  write("lines.txt", lines);
  write("slots.json", R"({"slots": [
      {"name": "ids", "type": "uint64", "is_dense": true, "shape": [-1, 1]},
      {"name": "x", "type": "float", "is_dense": true, "shape": [-1, 2]}]})");
  succeed("launch", {"--servers",
                     list,
                     "--trainer_num",
                     "2",
                     "--log_dir",
                     at("log"),
                     "--",
                     spawn::tool("run-program"),
                     "--role",
                     "auto",
                     "--transpiled",
                     at("job"),
                     "--files",
                     at("lines.txt"),
                     "--slots",
                     at("slots.json"),
                     "--batch-size",
                     "3",
                     "--fetch",
                     "loss",
                     "--output",
                     at("loss{rank}.npz"),
                     "--allow-dir",
                     folder_.path(),
                     "--save-params",
                     at("saved")});
  const std::string saved = testing::bytes_of(at("saved/w"));
  ASSERT_GT(saved.size(), 2 * sizeof(float));
  float w[2];
  std::memcpy(w, saved.data() + saved.size() - sizeof(w), sizeof(w));
  EXPECT_EQ(w[0], 10 - 0.25F * 2 * kDownpourRows);
  EXPECT_EQ(w[1], 10 - 0.25F * 4 * kDownpourRows);
}

TEST_F(FleetDownpour, EveryProcessHasTheDescriptionAndTheInformation) {
  const Ended made = transpile(R"(, "pservers": "127.0.0.1:7201", "trainers": 2)");
  ASSERT_EQ(made.code, 0) << made.output;
  EXPECT_THAT(made.output, HasSubstr("no shows that divide their gradients"));
  for (const char* const role : {"trainer_0", "trainer_1", "pserver_0"}) {
    const std::string folder = fmt::format("job/{}/", role);
    EXPECT_THAT(testing::bytes_of(at(folder + "fleet_desc.txt")),
                HasSubstr("accessor_class: \"DownpourCtrAccessor\""));
    const auto info = nlohmann::json::parse(testing::bytes_of(at(folder + "opt_info.json")));
    EXPECT_EQ(info["device_worker"], "DownpourSGD");
    EXPECT_EQ(info["worker_skipped_ops"],
              (std::vector<std::string>{"lookup_table", "lookup_table_grad"}));
    EXPECT_EQ(info["program_configs"]["PROGRAM_0"]["push_dense"], std::vector<int>{1});
  }
}

TEST_F(FleetDownpour, SeveralLossesAreDescribed) {
  write("other.prog", kDownpourMain);
  write("two.json", fmt::format(R"({{"losses": ["loss", {{"program": "{}", "loss": "loss"}}]}})",
                                at("other.prog")));
  succeed("transpile-program", {"--program", at("main.prog"), "--downpour", at("two.json"), "-o",
                                at("described"), "-q"});
  const auto info = nlohmann::json::parse(testing::bytes_of(at("described/opt_info.json")));
  EXPECT_EQ(info["program_configs"]["PROGRAM_0"]["pull_dense"], std::vector<int>{1});
  EXPECT_EQ(info["program_configs"]["PROGRAM_1"]["pull_dense"], std::vector<int>{2});
  for (const char* const name : {"main_0/__model__", "main_1/__model__", "fleet_desc.txt"})
    EXPECT_FALSE(testing::bytes_of(at(std::string("described/") + name)).empty()) << name;
}

TEST_F(FleetDownpour, SettingsReachTheDescription) {
  const auto described = [&](const std::string& members) {
    const Ended made = transpile(members, "");
    EXPECT_EQ(made.code, 0) << made.output;
    EXPECT_THAT(made.output, HasSubstr("--startup has no effect"));
    return testing::bytes_of(at("job/fleet_desc.txt"));
  };
  EXPECT_THAT(described(R"("early": true, "learning_rate": 0.375)"),
              HasSubstr("DownpourFeatureValueAccessor\"\n        sparse_sgd_param {\n          "
                        "learning_rate: 0.375"));
  EXPECT_THAT(described(R"("program_config_messages": true)"),
              HasSubstr("program_id: \"PROGRAM_0\""));
  EXPECT_THAT(described(R"("window": 3)"), HasSubstr("push_dense_per_batch: 3"));
  EXPECT_THAT(described(R"("data_norm_names": ["w"],
                           "datanorm_configs": {"datanorm_decay_rate": 0.5})"),
              HasSubstr("summary_decay_rate: 0.5"));
}

TEST_F(FleetDownpour, WhatTablesCannotDoIsRefusedByName) {
  const std::string processes = R"(, "pservers": "127.0.0.1:7201", "trainers": 1)";
  const auto refused = [&](const std::string& members, int code, const std::string& words,
                           const std::string& sparse = kDownpourSparse) {
    const Ended ended = transpile(processes + members, sparse);
    EXPECT_EQ(ended.code, code) << members;
    EXPECT_THAT(ended.output, HasSubstr(words));
  };
  refused(R"(, "window": 2)", 7, "push_sparse_per_batch (window) 2");
  refused(R"(, "dense_configs": {"dense_avg_decay": 0.5})", 7, "averages that decay by 0.5");
  refused("", 7, "the accessor 'DownpourCtrDoubleAccessor'",
          R"("sparse_configs": {"sparse_accessor_class": "DownpourCtrDoubleAccessor"})");
  refused("", 3, "fea_dim 11, expected 5 (set sparse_embedx_dim)",
          R"("sparse_configs": {"sparse_embedx_dim": 8})");
  refused(R"(, "windows": 2)", 3, "windows");
  refused(R"(, "data_norm_names": ["w"])", 7, "statistics of data_norm");
  const Ended two = transpile(R"(, "trainers": 2)");
  EXPECT_NE(two.code, 0);
  EXPECT_THAT(two.output, HasSubstr("expected both or neither"));
  write("skips.txt", "trainer_param { skip_op: \"mul\" }");
  refused(fmt::format(R"(, "fleet_desc_file": "{}")", at("skips.txt")), 7, "skip_op 'mul'");
}

}  // namespace
}  // namespace millrace::tools
