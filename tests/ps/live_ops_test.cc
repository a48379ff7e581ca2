#include <chrono>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "executor/standard_runtime.h"
#include "io/params.h"
#include "ps/ops/large_tables.h"
#include "ps/ops/trainer_ops.h"
#include "ps/server/serve_plan.h"
#include "tests/ps/server_fixture.h"

// Rare ops of trainer programs, with running servers: heterogeneous workers, requests to save
// tables; and the ops of large tables, on servers.

namespace millrace::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

// Runs the block of a trainer's program.
Status run_ops(const std::shared_ptr<Client>& client, const std::string& block, Scope& scope,
               const std::string& files_root = "") {
  auto program = read_program_bytes("# millrace program 1\n\nblock 0 {\n" + block + "}\n", "t", {});
  MILLRACE_RETURN_IF_ERROR(program.status());
  const auto link = std::make_shared<TrainerLink>(client);
  const auto runtime = executor::make_runtime(files_root);
  add_trainer_controls(runtime->controls, link, files_root);
  auto prepared = executor::Executor(runtime, {.optimize = false}).prepare(**program, scope);
  MILLRACE_RETURN_IF_ERROR(prepared.status());
  std::vector<Value> none;
  return (*prepared)->run({}, {}, none);
}

void put(Scope& scope, const std::string& name, const Floats& numbers, Dims dims) {
  auto& tensor = scope.local(name).as<Tensor>();
  ASSERT_TRUE(tensor.resize(DType::kFloat32, dims).ok());
  std::copy(numbers.begin(), numbers.end(), tensor.data<float>());
}

// A worker at an endpoint that multiplies by a factor.
std::string heter_worker(const std::string& endpoint, float factor) {
  return fmt::format(R"(# millrace program 1

block 0 {{
  persist h: f32(2)
  persist g: f32(2)

  heter_listen_and_serv X=h {{
      optimize_blocks: [^1], endpoint: "{}", fanin: 1, distributed_mode: 0, pserver_id: 0,
      message_to_block_id: ["layer:1"]
  }}
}}

block 1 parent=0 {{
  scale X=h -> Out=g {{scale: {:.1f}, op_role: 0}}
}}
)",
                     endpoint, factor);
}

TEST(ClosedInproc, NobodyWaitsForServersThatHaveEnded) {
  const auto way = std::make_shared<InprocTransport>();
  ClientOptions options;
  options.deadline = std::chrono::minutes(10);
  Client client(way, options);
  std::thread closes([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    way->close();
  });
  const auto begin = std::chrono::steady_clock::now();
  const Status status = client.mode_of("127.0.0.1:7000").status();
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_THAT(status.message(), HasSubstr("the servers of this process have ended"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  closes.join();
}

TEST(HeterWorker, RunsABlockForATrainer) {
  const auto way = std::make_shared<InprocTransport>();
  TestServer next(way, heter_worker("next", 2), {{"h", {0, 0}}});
  TestServer before(way, heter_worker("before", 10), {{"h", {0, 0}}});
  const auto client = std::make_shared<Client>(way, ClientOptions{});
  for (const auto& [mode, factor] : {std::pair("forward", 2.0F), std::pair("backward", 10.0F)}) {
    Scope scope;
    put(scope, "x", {1, 3}, {2});
    const Status status = run_ops(client,
                                  fmt::format(R"(
  persist x: f32(2)
  persist y: f32(2)
  send_and_recv X=x -> Out=y {{
      message_name: "layer", mode: "{}", send_var_name: ["h"], recv_var_name: ["g"],
      next_endpoints: ["next"], previous_endpoints: ["before"]
  }}
)",
                                              mode),
                                  scope);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_THAT(numbers_in(*scope.find("y")), ElementsAre(factor, 3 * factor)) << mode;
  }
  Scope scope;
  put(scope, "x", {1, 3}, {2});
  const Status unknown = run_ops(client, R"(
  persist x: f32(2)
  persist y: f32(2)
  send_and_recv X=x -> Out=y {message_name: "other", next_endpoints: ["next"]}
)",
                                 scope);
  EXPECT_THAT(unknown.to_string(), HasSubstr("no block for the message 'other'"));
}

// A program that names another trainer was made for that trainer.
TEST(TrainerOps, NameTheTrainerThatRunsThem) {
  const auto way = std::make_shared<InprocTransport>();
  const auto client = std::make_shared<Client>(way, ClientOptions{});
  const std::string names = "endpoints: [\"s\"], ";
  for (const std::string& op :
       {std::string("send X=x {epmap: [\"s\"], "), std::string("recv -> Out=x {epmap: [\"s\"], "),
        "send_barrier {" + names, "fetch_barrier {" + names,
        std::string("prefetch X=x -> Out=y {epmap: [\"s\"], "),
        "distributed_lookup_table Ids=x W=x -> Outputs=y {" + names,
        "checkpoint_notify {dirname: \"d\", varname: \"t\", " + names,
        "recv_save {file_path: \"f\", remote_varnames: [\"x\"], " + names,
        "send_and_recv X=x -> Out=y {message_name: \"m\", " + names}) {
    Scope scope;
    put(scope, "x", {1, 3}, {2});
    const std::string vars = "  persist x: f32(2)\n  persist y: f32(2)\n  ";
    EXPECT_THAT(run_ops(client, vars + op + "trainer_id: 1}\n", scope).to_string(),
                HasSubstr("attribute 'trainer_id' is 1, but this process is trainer 0"))
        << op;
  }
}

// The attributes for the mode in an old and in a new program; if both are set, they must agree.
TEST(ServePlan, OldProgramsHaveSyncModeAlone) {
  const auto plan = [](const std::string& attrs) -> StatusOr<ServePlan> {
    auto program = read_program_bytes(
        "# millrace program 1\n\nblock 0 {\n  listen_and_serv X=[] "
        "{optimize_blocks: [^1]" +
            attrs + "}\n}\n\nblock 1 parent=0 {\n}\n",
        "t", {});
    MILLRACE_RETURN_IF_ERROR(program.status());
    return ServePlan::read((*program)->root().front());
  };
  EXPECT_EQ(plan("")->mode, ServerMode::kSync);
  EXPECT_EQ(plan(", sync_mode: false")->mode, ServerMode::kAsync);
  EXPECT_EQ(plan(", sync_mode: true")->mode, ServerMode::kSync);
  EXPECT_EQ(plan(", distributed_mode: 1, sync_mode: false")->mode, ServerMode::kAsync);
  EXPECT_THAT(plan(", distributed_mode: 0, sync_mode: false").status().to_string(),
              HasSubstr("'sync_mode' false and 'distributed_mode' 0 contradict"));
  EXPECT_THAT(plan(", distributed_mode: 1, sync_mode: true").status().to_string(),
              HasSubstr("'sync_mode' true and 'distributed_mode' 1 contradict"));
}

// transpile(sync_mode=False) with a configuration that is synchronous: a distributed table has one
// var for all trainers, whatever the other gradients have.
TEST(ServePlan, ATableThatIsNotMergedBesideGradientsThatAreIsRefused) {
  const auto plan = [](const std::string& inputs, int trainers) -> StatusOr<ServePlan> {
    auto program = read_program_bytes(
        fmt::format(
            "# millrace program 1\n\nblock 0 {{\n  listen_and_serv X={} "
            "{{optimize_blocks: [^1, ^2], Fanin: {}, distributed_mode: 0, grad_to_block_id: "
            "[\"w@GRAD:1\", \"t@GRAD.pserver_0:2\"]}}\n}}\n\nblock 1 parent=0 {{\n}}\n\n"
            "block 2 parent=0 {{\n}}\n",
            inputs, trainers),
        "t", {});
    MILLRACE_RETURN_IF_ERROR(program.status());
    return ServePlan::read((*program)->root().front());
  };
  EXPECT_EQ(plan("w@GRAD", 2)->mode, ServerMode::kAsync);
  EXPECT_EQ(plan("w@GRAD", 1)->mode, ServerMode::kAsync);
  EXPECT_THAT(plan("w@GRAD.trainer_0, w@GRAD.trainer_1", 2).status().to_string(),
              HasSubstr("merges the gradients of 2 trainers for 'w@GRAD', but has a single var for "
                        "'t@GRAD.pserver_0'"));
}

// A server with a parameter and a table of three rows.
std::string table_server(const std::string& endpoint, int number) {
  return fmt::format(R"(# millrace program 1

block 0 {{
  persist w: f32(2)
  persist w@GRAD: f32(2)
  persist rate: f32(1)
  persist table: f32(3, 2)

  listen_and_serv X=w@GRAD {{
      optimize_blocks: [^1], endpoint: "{}", pserver_id: {}, Fanin: 1, distributed_mode: 1,
      grad_to_block_id: ["w@GRAD:1"], sparse_grad_to_param: strings[]
  }}
}}

block 1 parent=0 {{
  sgd Param=w Grad=w@GRAD LearningRate=rate -> ParamOut=w {{op_role: 2}}
}}
)",
                     endpoint, number);
}

class SavingTables : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    ServerOptions options;
    options.files_root = root_;
    for (int k = 0; k < 2; ++k) {
      const float base = 10.0F * static_cast<float>(k);
      servers_.push_back(std::make_unique<TestServer>(
          way_, table_server(fmt::format("server{}", k), k),
          std::map<std::string, Floats>{
              {"w", {8, 16}},
              {"rate", {1}},
              {"table", {base, base, base + 1, base + 1, base + 2, base + 2}}},
          options));
    }
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  Status notify(const std::string& folder, int mode) {
    Scope scope;
    return run_ops(client_,
                   fmt::format(R"(
  checkpoint_notify {{
      endpoints: ["server0", "server1"], dirname: "{}", varname: "table", mode: {}
  }}
)",
                               folder, mode),
                   scope);
  }
  Status set_table(const Floats& numbers) {
    Value value;
    auto& tensor = value.as<Tensor>();
    MILLRACE_RETURN_IF_ERROR(tensor.resize(DType::kFloat32, {3, 2}));
    std::copy(numbers.begin(), numbers.end(), tensor.data<float>());
    Client::Call call("server0", protocol::Send{SendKind::kValues, {{"table", &value, nullptr}}});
    return client_->call(call);
  }
  StatusOr<Value> load(const std::string& file, VarKind kind) {
    MILLRACE_ASSIGN_OR_RETURN(io::ParamValues values,
                              io::load_separate(root_, {{file, kind, {}, {}}}));
    return std::move(values[file]);
  }

  const std::string root_ = ::testing::TempDir() + "/ps_live_tables_" + std::to_string(::getpid());
  std::shared_ptr<InprocTransport> way_ = std::make_shared<InprocTransport>();
  std::vector<std::unique_ptr<TestServer>> servers_;
  std::shared_ptr<Client> client_ = std::make_shared<Client>(way_, ClientOptions{});
};

TEST_F(SavingTables, ModesSayWhichRows) {
  ASSERT_TRUE(notify("all", 0).ok());
  ASSERT_TRUE(notify("first", 1).ok());
  ASSERT_TRUE(set_table({0, 0, 5, 1, 2, 2}).ok());
  ASSERT_TRUE(notify("changed", 1).ok());
  ASSERT_TRUE(set_table({9, 9, 5, 1, 2, 2}).ok());
  ASSERT_TRUE(notify("base", 2).ok());
  ASSERT_TRUE(notify("nothing", 1).ok());
  const auto all = load("all/table_0", VarKind::kLodTensor);
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  EXPECT_THAT(numbers_in(*all), ElementsAre(0, 0, 1, 1, 2, 2));
  const auto first = load("first/table_1", VarKind::kSelectedRows);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_THAT(first->get_if<SelectedRows>()->rows, ElementsAre(0, 1, 2));
  const auto changed = load("changed/table_0", VarKind::kSelectedRows);
  ASSERT_TRUE(changed.ok()) << changed.status().to_string();
  const auto& rows = *changed->get_if<SelectedRows>();
  EXPECT_THAT(rows.rows, ElementsAre(1));
  EXPECT_THAT(rows.value.values<float>(), ElementsAre(5, 1));
  const auto base = load("base/table_0", VarKind::kLodTensor);
  ASSERT_TRUE(base.ok()) << base.status().to_string();
  EXPECT_THAT(numbers_in(*base), ElementsAre(9, 9, 5, 1, 2, 2));
  const auto nothing = load("nothing/table_0", VarKind::kSelectedRows);
  ASSERT_TRUE(nothing.ok()) << nothing.status().to_string();
  EXPECT_TRUE(nothing->get_if<SelectedRows>()->rows.empty());
  EXPECT_THAT(notify("x", 3).to_string(), HasSubstr("mode is 3, expected 0, 1 or 2"));
}

TEST_F(SavingTables, WhatOpsSayOfTheServersMustBeTrue) {
  const auto message = [&](const std::string& op) {
    Scope scope;
    return run_ops(client_, "  " + op + "\n", scope, root_).to_string();
  };
  for (const char* const slices : {"slice_varnames", "remote_varnames"}) {
    EXPECT_THAT(message(fmt::format("checkpoint_notify {{endpoints: [\"server0\", \"server1\"], "
                                    "dirname: \"d\", varname: \"table\", {}: [\"a\"]}}",
                                    slices)),
                HasSubstr(fmt::format("attribute '{}' has 1 entries for 2 servers", slices)));
  }
  const std::string save =
      "recv_save {file_path: \"w\", shape: [2l], slice_shapes: [\"2,\"], remote_varnames: [\"w\"], "
      "endpoints: [\"server0\"]";
  EXPECT_THAT(message(save + ", dtype: 6}"),
              HasSubstr("attribute 'dtype' is f64, but the server at server0 holds 'w' of f32"));
  EXPECT_THAT(message(save + ", dtype: 5}"), HasSubstr("ok"));
}

constexpr const char* kMetas =
    R"(["emb:Param,Moment1,Moment2:2,2,2:0:emb@GRAD:Moment1,Moment2,kSparseIDs@emb:fill_constant&1,fill_constant&0,fill_constant&0:none"])";

// Runs ops of large tables in one process.
class LargeTableOps : public ::testing::Test {
 protected:
  void SetUp() override {
    auto& ids = scope_.local("ids").as<Tensor>();
    ASSERT_TRUE(ids.resize(DType::kInt64, {2}).ok());
    ids.data<int64_t>()[0] = 7;
    ids.data<int64_t>()[1] = -3;
    auto& grad = scope_.local("grad").as<SelectedRows>();
    grad.rows = {7, 9, 7};
    grad.height = 100;
    ASSERT_TRUE(grad.value.resize(DType::kFloat32, {3, 2}).ok());
    const Floats numbers = {1, 2, 3, 4, 1, 2};
    std::copy(numbers.begin(), numbers.end(), grad.value.data<float>());
    put(scope_, "rate", {0.5}, {1});
    put(scope_, "b1", {0.5}, {1});
    put(scope_, "b2", {0.75}, {1});
    put(scope_, "v", {5, 6, 7, 8}, {2, 2});
    add_large_table_controls(runtime_->controls, std::make_shared<LargeTables>());
  }
  Status run(const std::string& ops) {
    auto program = read_program_bytes(R"(# millrace program 1

block 0 {
  persist ids: i64(2)
  persist grad: selected_rows f32(100, 2)
  persist rate: f32(1)
  persist b1: f32(1)
  persist b2: f32(1)
  persist v: f32(2, 2)
  persist p: f32(2, 2)
  persist m: f32(2, 2)
)" + ops + "}\n",
                                      "t", {});
    MILLRACE_RETURN_IF_ERROR(program.status());
    auto prepared = executor::Executor(runtime_, {.optimize = false}).prepare(**program, scope_);
    MILLRACE_RETURN_IF_ERROR(prepared.status());
    std::vector<Value> none;
    return (*prepared)->run({}, {}, none);
  }
  Status init(const std::string& metas = kMetas) {
    return run("  lookup_sparse_table_init {large_scale_metas: " + metas + "}\n");
  }
  Floats read(bool creates = true) {
    const Status status = run(fmt::format(
        "  lookup_sparse_table_read Ids=ids -> Out=p, m {{tablename: \"emb\", value_names: "
        "[\"Param\", \"Moment1\"], init: {}}}\n",
        creates));
    EXPECT_TRUE(status.ok()) << status.to_string();
    Floats numbers = numbers_in(*scope_.find("p"));
    const Floats more = numbers_in(*scope_.find("m"));
    numbers.insert(numbers.end(), more.begin(), more.end());
    return numbers;
  }

  Scope scope_;
  std::shared_ptr<executor::Runtime> runtime_ = executor::make_runtime();
};

TEST_F(LargeTableOps, RowsBeginWithTheirInitialisersAndKeepWhatIsWritten) {
  ASSERT_TRUE(init().ok());
  EXPECT_THAT(read(), ElementsAre(1, 1, 1, 1, 0, 0, 0, 0));
  ASSERT_TRUE(run("  lookup_sparse_table_write Ids=ids In=v {tablename: \"emb\", value_names: "
                  "[\"Param\"]}\n")
                  .ok());
  EXPECT_THAT(read(false), ElementsAre(5, 6, 7, 8, 0, 0, 0, 0));
  ASSERT_TRUE(run("  lookup_sparse_table_merge Ids=ids In=v -> Out=p {tablename: \"emb\", "
                  "value_names: [\"Param\"]}\n")
                  .ok());
  EXPECT_THAT(numbers_in(*scope_.find("p")), ElementsAre(10, 12, 14, 16));
}

TEST_F(LargeTableOps, SgdAddsUpRepeatedRows) {
  ASSERT_TRUE(init().ok());
  ASSERT_TRUE(run("  lookup_sparse_table_fuse_sgd Grad=grad LearningRate=rate {tablename: \"emb\", "
                  "value_names: [\"Param\"]}\n")
                  .ok());
  EXPECT_THAT(read(), ElementsAre(0, -1, 1, 1, 0, 0, 0, 0));
}

TEST_F(LargeTableOps, AdamFollowsItsFormula) {
  ASSERT_TRUE(init().ok());
  const Status status = run(
      "  lookup_sparse_table_fuse_adam Grad=grad LearningRate=rate Beta1Pow=b1 Beta2Pow=b2 -> "
      "Beta1PowOut=b1 Beta2PowOut=b2 {tablename: \"emb\", value_names: [\"Param\", \"Moment1\", "
      "\"Moment2\"], beta1: 0.5, beta2: 0.75, epsilon: 0.0}\n");
  ASSERT_TRUE(status.ok()) << status.to_string();
  // moments g/2 and g*g/4; the rate 0.5 * sqrt(1 - 0.75) / (1 - 0.5) = 0.5; m1 / sqrt(m2) = 1
  EXPECT_THAT(read(), ElementsAre(0.5, 0.5, 1, 1, 1, 2, 0, 0));
  EXPECT_THAT(numbers_in(*scope_.find("b1")), ElementsAre(0.25));
  EXPECT_THAT(numbers_in(*scope_.find("b2")), ElementsAre(0.5625));
}

TEST_F(LargeTableOps, EntriesHoldUpdatesBack) {
  ASSERT_TRUE(
      init(
          R"(["emb:Param,Moment1:2,2:0:emb@GRAD::fill_constant&1,fill_constant&0:count_filter_entry:2"])")
          .ok());
  const std::string sgd =
      "  lookup_sparse_table_fuse_sgd Grad=grad LearningRate=rate {tablename: \"emb\", "
      "value_names: "
      "[\"Param\"], is_entry: true}\n";
  ASSERT_TRUE(run(sgd).ok());
  EXPECT_THAT(read(), ElementsAre(1, 1, 1, 1, 0, 0, 0, 0));
  ASSERT_TRUE(run(sgd).ok());
  EXPECT_THAT(read(), ElementsAre(0, -1, 1, 1, 0, 0, 0, 0));
}

TEST_F(LargeTableOps, SayWhatIsWrong) {
  EXPECT_THAT(init(R"(["emb:Param"])").to_string(), HasSubstr("2 parts, expected 8"));
  EXPECT_THAT(init(R"(["emb:Param:0:0:g::fill_constant&1:none"])").to_string(),
              HasSubstr("'0' is not a valid width"));
  const std::string sgd =
      "  lookup_sparse_table_fuse_sgd Grad=grad LearningRate=rate {tablename: \"emb\", "
      "value_names: "
      "[\"Other\"]}\n";
  EXPECT_THAT(run(sgd).to_string(), HasSubstr("large table 'emb' does not exist"));
  ASSERT_TRUE(init().ok());
  EXPECT_THAT(run(sgd).to_string(), HasSubstr("no column 'Other'"));
  const Status missing =
      run("  lookup_sparse_table_read Ids=ids -> Out=p {tablename: \"emb\", value_names: "
          "[\"Param\"]}\n");
  EXPECT_THAT(missing.to_string(), HasSubstr("has no row 7"));
}

}  // namespace
}  // namespace millrace::ps
