// Jobs with heter workers, by the tools: they train as one process does with the batches of all
// trainers, in one process and in several; lost and foreign workers are named.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/file.h"
#include "io/npz.h"
#include "tests/tools/ctr_folder.h"

namespace millrace::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// An embedding and a layer on the CPU; {0} and {1}: more vars and ops of the other device.
constexpr const char* kHeterNet = R"(# millrace program 1

block 0 {{
  param emb: f32(50, 8)
  param w0: f32(4, 8)
  param w1: f32(8, 2048)
  param b1: f32(2048)
  param w2: f32(2048, 1)
  var ids: i64(-1, 1) need_check_feed
  var x: f32(-1, 4) need_check_feed
  var y: f32(-1, 1) need_check_feed
  var e3: f32(-1, 1, 8)
  var e: f32(-1, 8)
  var a: f32(-1, 8)
  var h: f32(-1, 8)
  var p: f32(-1, 2048)
  var o: f32(-1, 2048)
  var r: f32(-1, 2048)
  var out: f32(-1, 1)
  var d: f32(-1, 1)
  var q: f32(-1, 1)
  var loss: f32(1)
{0}
  lookup_table_v2 Ids=ids W=emb -> Out=e3 {{is_sparse: true}}
  squeeze X=e3 -> Out=e {{axes: [1]}}
  mul X=x Y=w0 -> Out=a {{op_device: "cpu"}}
  elementwise_add X=e Y=a -> Out=h
  mul X=h Y=w1 -> Out=p {{op_device: "gpu"}}
  elementwise_add X=p Y=b1 -> Out=o {{axis: 1, op_device: "gpu"}}
  tanh X=o -> Out=r {{op_device: "gpu"}}
  mul X=r Y=w2 -> Out=out {{op_device: "gpu"}}
{1}
  elementwise_sub X=out Y=y -> Out=d {{op_device: "gpu"}}
  square X=d -> Out=q {{op_device: "gpu"}}
  mean X=q -> Out=loss {{op_device: "gpu"}}
}}
)";
constexpr const char* kHeterParams[] = {"emb", "w0", "w1", "b1", "w2"};
constexpr int64_t kHeterRows = 3;  // of a batch
constexpr int kHeterSteps = 4;

std::string startup_of(const std::map<std::string, Dims>& params) {
  std::string text = "# millrace program 1\n\nblock 0 {\n";
  std::string ops;
  for (const auto& [name, dims] : params) {
    text += fmt::format("  persist {}: f32({})\n", name, fmt::join(dims, ", "));
    ops += fmt::format(
        "  uniform_random -> Out={} {{shape: [{}l], seed: 3, min: -0.1, max: 0.1, dtype: 5}}\n",
        name, fmt::join(dims, "l, "));
  }
  return text + ops + "}\n";
}

class HeterJobs : public CtrFolder {
 protected:
  // Writes the training program, the initial values and the feeds of that many trainers; `whole`
  // has the batches of all trainers in one.
  void make_net(int trainers, const std::string& vars = "", const std::string& ops = "") {
    const std::map<std::string, Dims> params{
        {"emb", {50, 8}}, {"w0", {4, 8}}, {"w1", {8, 2048}}, {"b1", {2048}}, {"w2", {2048, 1}}};
    write("net", fmt::format(kHeterNet, vars, ops));
    write("net_startup", startup_of(params));
    write("min.json",
          R"({"losses": ["loss"], "optimizer": [{"type": "adam", "learning_rate": 0.01}]})");
    succeed("transpile-program",
            {"--program", at("net"), "--startup", at("net_startup"), "--minimize", at("min.json"),
             "-o", at("alone"), "--force", "-q"});
    NamedValues first;
    for (const auto& [name, dims] : params) fill(first[name], dims, static_cast<int>(name.size()));
    write("first.npz", *io::npz_bytes(first));
    write_heter_feeds(trainers);
  }
  static void fill(Value& value, const Dims& dims, int number) {
    auto& tensor = value.as<Tensor>();
    check(tensor.resize(DType::kFloat32, dims));
    for (int64_t i = 0; i < tensor.numel(); ++i)
      tensor.data<float>()[i] = static_cast<float>((i * 37 + number * 11) % 101) * 0.002F - 0.1F;
  }
  void write_heter_feeds(int trainers) const {
    NamedValues all;
    NamedValues whole;
    for (int step = 0; step < kHeterSteps; ++step) {
      const std::string member = fmt::format("step{}/", step);
      add_rows(whole, member, trainers * kHeterRows, 0, step);
      for (int t = 0; t < trainers; ++t)
        add_rows(all, fmt::format("t{}/", t) + member, kHeterRows, t * kHeterRows, step);
    }
    write("feeds.npz", *io::npz_bytes(all));
    write("whole.npz", *io::npz_bytes(whole));
    for (int t = 0; t < trainers; ++t) {
      NamedValues own;
      for (int step = 0; step < kHeterSteps; ++step)
        add_rows(own, fmt::format("step{}/", step), kHeterRows, t * kHeterRows, step);
      write(fmt::format("own{}.npz", t), *io::npz_bytes(own));
    }
  }
  static void add_rows(NamedValues& feeds, const std::string& prefix, int64_t rows, int64_t from,
                       int step) {
    auto& ids = feeds[prefix + "ids"].as<Tensor>();
    auto& x = feeds[prefix + "x"].as<Tensor>();
    auto& y = feeds[prefix + "y"].as<Tensor>();
    check(ids.resize(DType::kInt64, {rows, 1}));
    check(x.resize(DType::kFloat32, {rows, 4}));
    check(y.resize(DType::kFloat32, {rows, 1}));
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = from + i;
      ids.data<int64_t>()[i] = (row * 7 + step * 3) % 50;
      for (int64_t k = 0; k < 4; ++k)
        x.data<float>()[i * 4 + k] =
            static_cast<float>((row * 5 + k * 3 + step) % 11) * 0.1F - 0.5F;
      y.data<float>()[i] = static_cast<float>((row + step) % 3) - 1.0F;
    }
  }
  // Writes the job of servers, trainers and heter workers at these endpoints.
  [[nodiscard]] Ended transpile_heter(const std::string& servers, int trainers,
                                      const std::string& workers, const Words& more = {}) const {
    return run(
        "transpile-program",
        joined({"--program", at("alone/main/__model__"), "--startup", at("alone/main/__startup__"),
                "--pservers", servers, "--trainers", std::to_string(trainers), "--trainer-id",
                "all", "--heter-workers", workers, "-o", at("job"), "--force", "-q"},
               more));
  }
  [[nodiscard]] Arrays train_alone() const {
    succeed("run-program",
            {"--program", at("alone/main/__model__"), "--startup", at("alone/main/__startup__"),
             "--params", at("first.npz"), "--feed-steps", at("whole.npz"), "--steps",
             std::to_string(kHeterSteps), "--save-persistables", at("alone.npz"), "--fetch", "loss",
             "--output", at("losses.npz"), "-q", "--force"});
    return floats_in(at("alone.npz"));
  }
  [[nodiscard]] Ended run_heter(const Words& more = {}) const {
    return run("run-program",
               joined({"--cluster", "inproc", "--transpiled", at("job"), "--params",
                       at("first.npz"), "--feed-steps", at("feeds.npz"), "--steps",
                       std::to_string(kHeterSteps), "--fetch", "loss", "--output", at("out.npz"),
                       "--save-persistables", at("after.npz"), "-q", "--force"},
                      more));
  }
  static float bound(float value) { return 2e-6F * std::max(1.0F, std::abs(value)); }
  static void expect_near(const Arrays& found, const Arrays& wanted, const std::string& name) {
    ASSERT_EQ(found.count(name), 1U) << name;
    const std::vector<float>& other = wanted.at(name);
    ASSERT_EQ(found.at(name).size(), other.size()) << name;
    for (size_t i = 0; i < other.size(); ++i)
      ASSERT_NEAR(found.at(name)[i], other[i], bound(other[i])) << name << " " << i;
  }

  static constexpr const char* kServers = "127.0.0.1:7310,127.0.0.1:7311";
};

TEST_F(HeterJobs, SynchronousOnesTrainAsOneProcess) {
  for (const int trainers : {1, 2}) {
    make_net(trainers);
    const Arrays alone = train_alone();
    const Arrays losses = floats_in(at("losses.npz"));
    for (const int workers : {1, 2}) {
      const Ended made = transpile_heter(kServers, trainers, workers == 1 ? "h:1" : "h:1,h:2");
      ASSERT_EQ(made.code, 0) << made.output;
      const Ended ended = run_heter();
      ASSERT_EQ(ended.code, 0) << trainers << " " << workers << "\n" << ended.output;
      const Arrays after = floats_in(at("after.npz"));
      for (const char* const name : kHeterParams) expect_near(after, alone, name);
      const Arrays out = floats_in(at("out.npz"));
      for (int step = 0; step < kHeterSteps; ++step) {
        float sum = 0;
        for (int t = 0; t < trainers; ++t)
          sum += out.at(fmt::format("t{}/step{}/loss", t, step)).at(0);
        const float whole = losses.at(fmt::format("step{}/loss", step)).at(0);
        EXPECT_NEAR(sum / static_cast<float>(trainers), whole, bound(whole));
      }
    }
  }
}

// Moving averages of batch_norm, and a var that only fetches need.
TEST_F(HeterJobs, StateOfTheWorkersIsThatOfTrainers) {
  make_net(1,
           "  param size: f32(1)\n  param shift: f32(1)\n  persist mean: f32(1) stop_gradient\n"
           "  persist spread: f32(1) stop_gradient\n  var n: f32(-1, 1)\n  var own_mean: f32(1)\n"
           "  var own_spread: f32(1)\n  var top: f32(1)",
           "  batch_norm X=out Scale=size Bias=shift Mean=mean Variance=spread -> Y=n MeanOut=mean "
           "VarianceOut=spread SavedMean=own_mean SavedVariance=own_spread {momentum: 0.5, "
           "epsilon: 0.1, data_layout: \"NCHW\", op_device: \"gpu\"}\n"
           "  reduce_max X=n -> Out=top {dim: [0], keep_dim: false, reduce_all: true, op_device: "
           "\"gpu\"}");
  std::string startup = startup_of({{"emb", {50, 8}},
                                    {"w0", {4, 8}},
                                    {"w1", {8, 2048}},
                                    {"b1", {2048}},
                                    {"w2", {2048, 1}},
                                    {"size", {1}},
                                    {"shift", {1}},
                                    {"mean", {1}},
                                    {"spread", {1}}});
  write("net_startup", startup);
  std::string net = testing::bytes_of(at("net"));
  net.replace(net.find("elementwise_sub X=out"), 21, "elementwise_sub X=n");
  write("net", net);
  // adam would turn the noise of gradients that batch_norm makes vanish into whole steps
  write("min.json",
        R"({"losses": ["loss"], "optimizer": [{"type": "sgd", "learning_rate": 0.01}]})");
  succeed("transpile-program", {"--program", at("net"), "--startup", at("net_startup"),
                                "--minimize", at("min.json"), "-o", at("alone"), "--force", "-q"});
  const Arrays alone = train_alone();
  const Ended made = transpile_heter(kServers, 1, "h:1", {"--heter-returned", "top"});
  ASSERT_EQ(made.code, 0) << made.output;
  const Ended ended = run_heter({"--fetch", "top,mean,spread"});
  ASSERT_EQ(ended.code, 0) << ended.output;
  const Arrays out = floats_in(at("out.npz"));
  const std::string last = fmt::format("t0/step{}/", kHeterSteps - 1);
  expect_near({{"mean", out.at(last + "mean")}, {"spread", out.at(last + "spread")}}, alone,
              "mean");
  expect_near({{"spread", out.at(last + "spread")}}, alone, "spread");
  EXPECT_EQ(out.count(last + "top"), 1U);
}

TEST_F(HeterJobs, SeveralProcessesTrainAsOne) {
  make_net(2);
  const Arrays alone = train_alone();
  const std::string list = spawn::free_endpoints(4);
  const Words places = [&] {
    Words words;
    for (size_t at = 0; at != std::string::npos;) {
      const size_t end = list.find(',', at);
      words.push_back(list.substr(at, end - at));
      at = end == std::string::npos ? end : end + 1;
    }
    return words;
  }();
  const std::string servers = places[0] + "," + places[1];
  const std::string workers = places[2] + "," + places[3];
  ASSERT_EQ(transpile_heter(servers, 2, workers).code, 0);
  const Words trainers =
      launched_trainers(servers, at("logs"), at("job"), at("own{rank}.npz"), kHeterSteps, "loss");
  const Ended ended =
      run("launch", joined(joined({"--heter_workers", workers}, trainers),
                           {"--params", at("first.npz"), "--save-persistables",
                            at("after{rank}.npz"), "--silence-timeout-ms", "20000"}));
  ASSERT_EQ(ended.code, 0) << ended.output;
  for (const char* const file : {"after0.npz", "after1.npz"}) {
    const Arrays after = floats_in(at(file));
    for (const char* const name : kHeterParams) expect_near(after, alone, name);
  }
}

// A job of one process for each role, whose trainer takes the same batch in every step.
class HeterProcesses : public HeterJobs {
 protected:
  void SetUp() override {
    make_net(1);
    const std::string list = spawn::free_endpoints(2);
    server_ = list.substr(0, list.find(','));
    worker_ = list.substr(list.find(',') + 1);
    ASSERT_EQ(transpile_heter(server_, 1, worker_).code, 0);
  }
  [[nodiscard]] spawn::Process start(const std::string& role, const Words& more = {}) const {
    return spawn::Process(joined({spawn::tool("run-program"), "--role", role, "--transpiled",
                                  at("job"), "--silence-timeout-ms", "4000"},
                                 more));
  }
  [[nodiscard]] spawn::Process start_server() const {
    return spawn::Process({spawn::tool("pserver"), "--program", at("job/pserver_0/__model__"),
                           "--startup", at("job/pserver_0/__startup__"), "--params",
                           at("first.npz"), "--silence-timeout-ms", "4000"});
  }
  [[nodiscard]] spawn::Process start_trainer(int steps, const Words& more) const {
    return start("trainer",
                 joined({"--params", at("first.npz"), "--feed", "ids=3x1xi64=random:1:50", "--feed",
                         "x=3x4xf32=random:2", "--feed", "y=3x1xf32=random:3", "--steps",
                         std::to_string(steps), "--print-period", "50", "--fetch", "loss",
                         "--progress", "never"},
                        more));
  }
  static void wait_for_steps(const spawn::Process& trainer) {
    for (int i = 0; i < 2000 && trainer.output().find("step 100:") == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  std::string server_;
  std::string worker_;
};

TEST_F(HeterProcesses, AWorkerThatIsLostEndsTheJob) {
  for (const int how : {SIGKILL, SIGSTOP}) {
    spawn::Process heter = start("heter", {"--heter-id", "0"});
    spawn::Process server = start_server();
    spawn::Process trainer = start_trainer(1'000'000, {"--deadline-ms", "4000"});
    wait_for_steps(trainer);
    heter.signal(how);
    ASSERT_EQ(trainer.wait(kTimeoutMs), 5) << trainer.output();
    EXPECT_THAT(trainer.output(), AllOf(HasSubstr("in 'run' to the server at " + worker_),
                                        HasSubstr("send_and_recv")));
    EXPECT_EQ(server.wait(kTimeoutMs), 5) << server.output();
    if (how == SIGKILL) continue;
    heter.signal(SIGCONT);
    EXPECT_EQ(heter.wait(kTimeoutMs), 5) << heter.output();
  }
}

// It keeps nothing that the next one would lack.
TEST_F(HeterProcesses, AWorkerThatIsStartedAgainContinues) {
  Arrays wanted;
  for (const bool restarts : {false, true}) {
    auto heter = std::make_unique<spawn::Process>(start("heter"));
    spawn::Process server = start_server();
    spawn::Process trainer = start_trainer(
        800,
        {"--reconnect-timeout-ms", "30000", "--save-persistables", at("after.npz"), "--force"});
    if (restarts) {
      wait_for_steps(trainer);
      heter->signal(SIGKILL);
      EXPECT_EQ(heter->wait(kTimeoutMs), 128 + SIGKILL);
      heter = std::make_unique<spawn::Process>(start("heter"));
    }
    ASSERT_EQ(trainer.wait(kTimeoutMs), 0) << trainer.output();
    EXPECT_EQ(server.wait(kTimeoutMs), 0) << server.output();
    EXPECT_EQ(heter->wait(kTimeoutMs), 0) << heter->output();
    const Arrays after = floats_in(at("after.npz"));
    if (!restarts) wanted = after;
    EXPECT_EQ(after, wanted);
  }
}

// Only one device would call the worker.
TEST_F(HeterProcesses, TrainersWithSeveralDevicesAreRefused) {
  const spawn::Process heter = start("heter");
  const spawn::Process server = start_server();
  spawn::Process trainer = start_trainer(1, {"--devices", "cpu:2"});
  EXPECT_EQ(trainer.wait(kTimeoutMs), 7) << trainer.output();
  EXPECT_THAT(trainer.output(), HasSubstr("with a trainer that calls heter workers"));
}

// The same by transpile-program --fleet: parameters are in typed tables.
TEST_F(HeterJobs, FleetJobsTrainAsWithoutThem) {
  make_net(2);
  std::string net = testing::bytes_of(at("net"));
  net.replace(net.find("is_sparse: true"), 15, "is_sparse: true, remote_prefetch: true");
  write("net", net);
  Arrays wanted;
  for (const std::string more : {"", R"(, "heter_workers": "h:1,h:2", "heter_returned": "r")"}) {
    write("fleet.json",
          fmt::format(R"({{"mode": "sync", "pservers": "{}", "trainers": 2{}}})", kServers, more));
    succeed("transpile-program",
            {"--program", at("net"), "--startup", at("net_startup"), "--minimize", at("min.json"),
             "--fleet", at("fleet.json"), "-o", at("job"), "--force", "-q"});
    const Ended ended =
        run("run-program",
            {"--cluster", "inproc", "--transpiled", at("job"), "--feed-steps", at("feeds.npz"),
             "--steps", std::to_string(kHeterSteps), "--fetch", "loss", "--fetch", "r", "--output",
             at("out.npz"), "--save-persistables", at("after.npz"), "-q", "--force"});
    ASSERT_EQ(ended.code, 0) << ended.output;
    Arrays found = floats_in(at("after.npz"));
    for (auto& [name, values] : floats_in(at("out.npz"))) found[name] = values;
    if (more.empty()) wanted = found;
    EXPECT_EQ(found.size(), wanted.size());
    for (const auto& [name, values] : wanted) expect_near(found, wanted, name);
  }
  write("fleet.json", fmt::format(R"({{"mode": "sync", "pservers": "{}", "trainers": 2,
                                  "heter_returned": "r"}})",
                                  kServers));
  EXPECT_THAT(run("transpile-program",
                  {"--program", at("net"), "--startup", at("net_startup"), "--minimize",
                   at("min.json"), "--fleet", at("fleet.json"), "-o", at("job"), "--force", "-q"})
                  .output,
              HasSubstr("heter_returned: the job has no heter workers"));
}

// The ops of a worker's program are those that trainers ask for, or it does not know them.
TEST_F(HeterJobs, AWorkerWithOtherOpsIsRefused) {
  make_net(1);
  ASSERT_EQ(transpile_heter(kServers, 1, "h:1").code, 0);
  const std::string kept = testing::bytes_of(at("job/heter_0/__model__"));
  make_net(1, "  var unused: f32(-1, 1)", "  abs X=out -> Out=unused {op_device: \"gpu\"}");
  ASSERT_EQ(transpile_heter(kServers, 1, "h:1").code, 0);
  write("job/heter_0/__model__", kept);
  const Ended ended = run_heter();
  EXPECT_EQ(ended.code, 3) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("(h:1) has no block for the message 'stage0_"));
}

TEST_F(HeterJobs, WhatTheyCannotDoIsRefused) {
  make_net(1);
  const auto refused = [&](const std::string& workers, const Words& more) {
    const Ended ended = transpile_heter(kServers, 1, workers, more);
    EXPECT_NE(ended.code, 0);
    return ended.output;
  };
  EXPECT_THAT(refused("h:1", {"--heter-returned", "h"}),
              HasSubstr("returned: no op of a heter worker computes 'h'"));
  EXPECT_THAT(refused("h:1,h:1", {}), HasSubstr("h:1"));
  EXPECT_THAT(refused("h:1", {"--transpiler", "federated"}),
              HasSubstr("'heter_workers' with transpiler 'federated' and mode 'pserver'"));
}

}  // namespace
}  // namespace millrace::tools
