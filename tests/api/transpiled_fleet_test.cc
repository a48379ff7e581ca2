// Jobs of the first fleet by the installed library: in each mode the servers end with the values of
// one process; jobs are saved while they train, and continue from that.

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/executor.h"
#include "api/fleet.h"
#include "api/persistables.h"
#include "api/scope.h"
#include "api/training.h"
#include "executor/session.h"
#include "framework/program.h"
#include "framework/program_file.h"
#include "tests/api/nets.h"
#include "tests/io/temp_folder.h"

namespace millrace::api {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

constexpr int kTwoServers = 2;
constexpr int kTranspiledSteps = 4;

MinimizeOptions momentum() {
  return {.method = Momentum{.momentum = 0.9}, .learning_rate = 0.05};
}

// One training program, whose variables are saved before its first step and after every step.
class OneProcess {
 public:
  explicit OneProcess(const TempFolder& folder) : folder_(folder) {
    check(net_.net.status());
    training_ = value_of(minimize(net_.net.main(), net_.net.startup(), loss(), momentum()));
    Executor executor = value_of(Executor::create());
    const Scope scope;
    check(executor.run(*training_.startup, scope).status());
    save(scope, 0);
    for (int step = 0; step < kTranspiledSteps; ++step) {
      check(executor.run(*training_.main, scope, batch(step), {loss()}).status());
      save(scope, step + 1);
    }
  }

  [[nodiscard]] const Program& main() const { return net_.net.main(); }
  [[nodiscard]] const Program& startup() const { return net_.net.startup(); }
  [[nodiscard]] std::string loss() const { return net_.loss.name(); }
  [[nodiscard]] std::string guess() const { return net_.guess.name(); }
  /// Its variables after that many steps.
  [[nodiscard]] std::string after(int steps) const {
    return folder_ / ("after" + std::to_string(steps));
  }

  /// A variable in a folder.
  [[nodiscard]] Array saved(const std::string& folder, const std::string& name) const {
    const Scope scope;
    check(load_vars(*training_.main, scope, {name}, folder));
    return value_of(scope.get(name));
  }
  /// Compares parameters, and the state of the optimizer unless workers have it.
  void expect_same(const std::string& folder, int steps, bool with_state) const {
    std::vector<std::string> names;
    for (const auto& [param, grad] : training_.param_grads) {
      names.push_back(param);
      if (with_state) names.push_back(param + "_velocity_0");
    }
    for (const std::string& name : names) {
      const Array one = saved(after(steps), name);
      const Array other = saved(folder, name);
      ASSERT_EQ(one.dims, other.dims) << name;
      for (size_t i = 0; i < one.values<float>().size(); ++i)
        EXPECT_NEAR(other.values<float>()[i], one.values<float>()[i], 1e-6F) << name << " " << i;
    }
  }

 private:
  void save(const Scope& scope, int steps) const {
    check(save_persistables(*training_.main, scope, after(steps)).status());
  }

  const TempFolder& folder_;
  SmallNet net_{/*dropout=*/false, /*trains=*/false};
  MinimizeResult training_;
};

// A process of a job, up to its programs.
Fleet prepared_transpiled(const Connection& connection, const OneProcess& net, FleetRole role,
                          const TranspilerStrategy& strategy) {
  role.server_endpoints = {"a:1", "b:1"};
  Fleet fleet(connection);
  check(fleet.init(role));
  check(fleet.distributed_optimizer(momentum(), strategy));
  check(fleet.minimize(net.main(), net.startup(), net.loss()));
  return fleet;
}

// The servers of a job, which begin with the variables of a folder.
class FleetServers {
 public:
  FleetServers(const Connection& connection, const OneProcess& net, int workers,
               const TranspilerStrategy& strategy, const std::string& folder,
               const ServerOptions& service = {}) {
    for (int i = 0; i < kTwoServers; ++i) {
      servers_.push_back(prepared_transpiled(
          connection, net, {.is_server = true, .id = i, .worker_num = workers}, strategy));
      check(servers_.back().init_server(folder, {}, {}, service));
    }
    for (Fleet& server : servers_) threads_.emplace_back([&server] { check(server.run_server()); });
  }
  ~FleetServers() {
    for (Fleet& server : servers_) server.stop_server();
    join();
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::vector<Fleet> servers_;
  std::vector<std::thread> threads_;
};

Fleet started(const Connection& connection, const OneProcess& net, int worker, int workers,
              const TranspilerStrategy& strategy) {
  Fleet fleet =
      prepared_transpiled(connection, net, {.id = worker, .worker_num = workers}, strategy);
  check(fleet.init_worker({.wait_for_servers = std::nullopt}));
  return fleet;
}

struct ModeCase {
  const char* name;
  TranspilerStrategy strategy;
  int workers;
  bool servers_have_state;
};

class TranspiledFleet : public ::testing::TestWithParam<ModeCase> {};

// All workers have the same batches, so that a mean over them is that of one process.
TEST_P(TranspiledFleet, EndsWithTheValuesOfOneProcess) {
  const ModeCase& job = GetParam();
  const TempFolder folder;
  const OneProcess net(folder);
  const Connection connection = Connection::in_process();
  FleetServers servers(connection, net, job.workers, job.strategy, net.after(0));
  std::vector<std::thread> threads;
  for (int w = 0; w < job.workers; ++w) {
    threads.emplace_back([&, w] {
      Fleet worker = started(connection, net, w, job.workers, job.strategy);
      EXPECT_EQ(value_of(worker.role()).worker_num, job.workers);
      for (int step = 0; step < kTranspiledSteps; ++step)
        check(worker.step(batch(step), {net.loss()}).status());
      check(worker.wait_for_all());
      EXPECT_THAT(worker.step(batch(0)).status().to_string(), HasSubstr("wait_for_all()"));
      check(worker.save_persistables({.root = folder.path(), .folder = "saved"}));
      check(worker.stop_worker());
      EXPECT_THAT(worker.stop_worker().to_string(), HasSubstr("this worker has stopped"));
    });
  }
  for (std::thread& thread : threads) thread.join();
  servers.join();
  net.expect_same(folder / "saved", kTranspiledSteps, job.servers_have_state);
}

INSTANTIATE_TEST_SUITE_P(Modes, TranspiledFleet,
                         ::testing::Values(ModeCase{"sync", TranspilerStrategy::sync(), 2, true},
                                           ModeCase{"half_async", TranspilerStrategy::half_async(),
                                                    1, true},
                                           ModeCase{"geo", TranspilerStrategy::geo(1), 1, false}),
                         [](const auto& test) { return std::string(test.param.name); });

// A parameter, which a server has, and a count of steps, which only workers have.
constexpr const char* kCountingMain = R"(# millrace program 1

block 0 {
  param w: f32(3, 4)
  persist seen: f32(1)
  var x: f32(-1, 3)
  var h: f32(-1, 4)
  var q: f32(-1, 4)
  var loss: f32(1)
  increment X=seen -> Out=seen {step: 1.0}
  mul X=x Y=w -> Out=h {x_num_col_dims: 1, y_num_col_dims: 1}
  square X=h -> Out=q
  mean X=q -> Out=loss
}
)";
constexpr const char* kCountingStartup = R"(# millrace program 1

block 0 {
  persist w: f32(3, 4)
  persist seen: f32(1)
  uniform_random -> Out=w {shape: [3l, 4l], seed: 2, min: -0.5, max: 0.5, dtype: 5}
  fill_constant -> Out=seen {shape: [1l], value: 0.0, dtype: 5}
}
)";

TEST(TranspiledFleets, WorkersContinueWithWhatOnlyTheyHave) {
  const TempFolder folder;
  const auto main = value_of(parse_program_bytes(kCountingMain, "text"));
  const auto startup = value_of(parse_program_bytes(kCountingStartup, "text"));
  // \returns the steps that worker 0 has counted
  const auto run = [&](const std::string& from, const std::string& to, bool worker_loads) {
    const Connection connection = Connection::in_process();
    const auto prepared = [&](bool is_server) {
      Fleet fleet(connection);
      check(fleet.init({.is_server = is_server, .worker_num = 1, .server_endpoints = {"a:1"}}));
      check(fleet.distributed_optimizer(momentum(), TranspilerStrategy::sync()));
      check(fleet.minimize(*main, *startup, "loss"));
      return fleet;
    };
    Fleet server = prepared(true);
    check(server.init_server(from));
    std::thread serving([&] { check(server.run_server()); });
    Fleet worker = prepared(false);
    check(worker.init_worker(
        {.wait_for_servers = std::nullopt, .folder = worker_loads ? from : std::string()}));
    for (int step = 0; step < 3; ++step) {
      Arrays feeds = batch(step);
      feeds.erase("t");
      check(worker.step(feeds).status());
    }
    check(worker.wait_for_all());
    const float seen = value_of(worker.get("seen")).values<float>()[0];
    check(worker.save_persistables({.root = folder.path(), .folder = to}));
    check(worker.stop_worker());
    serving.join();
    return seen;
  };
  EXPECT_EQ(run("", "first", false), 3.0F);
  EXPECT_EQ(run(folder / "first", "second", true), 6.0F);
  EXPECT_EQ(run(folder / "second", "third", true), 9.0F);
  EXPECT_EQ(run(folder / "second", "fourth", false), 3.0F);
}

// Their steps do not wait for each other, so they do not do what one process does. At the end all
// have the values of the servers, which are what is saved.
void expect_one_end(const TranspilerStrategy& strategy) {
  const TempFolder folder;
  const OneProcess net(folder);
  const Connection connection = Connection::in_process();
  FleetServers servers(connection, net, 2, strategy, net.after(0));
  const auto floats = [](const Array& array) {
    const auto values = array.values<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  std::vector<std::vector<float>> ends(2);
  std::vector<std::thread> threads;
  for (int w = 0; w < 2; ++w) {
    threads.emplace_back([&, w] {
      Fleet worker = started(connection, net, w, 2, strategy);
      for (int step = 0; step < kTranspiledSteps; ++step)
        check(worker.step(batch(3 * step + w)).status());
      check(worker.wait_for_all());
      ends[static_cast<size_t>(w)] = floats(value_of(worker.get("fc_0.w_0")));
      check(worker.save_persistables({.root = folder.path(), .folder = "saved"}));
      check(worker.stop_worker());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<float> saved = floats(net.saved(folder / "saved", "fc_0.w_0"));
  EXPECT_EQ(ends[0], saved);
  EXPECT_EQ(ends[1], saved);
  EXPECT_NE(floats(net.saved(net.after(0), "fc_0.w_0")), saved);
}

TEST(TranspiledFleets, AsynchronousWorkersEndWithWhatIsSaved) {
  expect_one_end(TranspilerStrategy::async());
}
TEST(TranspiledFleets, HalfAsynchronousWorkersEndWithWhatIsSaved) {
  expect_one_end(TranspilerStrategy::half_async());
}
TEST(TranspiledFleets, GeoWorkersEndWithWhatIsSaved) {
  expect_one_end(TranspilerStrategy::geo(2));
}

TEST(TranspiledFleets, AreSavedWhileTheyTrainAndContinue) {
  const TempFolder folder;
  const OneProcess net(folder);
  const TranspilerStrategy strategy = TranspilerStrategy::sync();
  // saves after half of the steps and trains on
  const auto train = [&](const std::string& from, int first, int steps, const std::string& name) {
    const Connection connection = Connection::in_process();
    FleetServers servers(connection, net, 2, strategy, from);
    std::vector<std::thread> threads;
    for (int w = 0; w < 2; ++w) {
      threads.emplace_back([&, w] {
        Fleet worker = started(connection, net, w, 2, strategy);
        for (int step = first; step < first + steps; ++step) {
          check(worker.step(batch(step)).status());
          if (step != 1) continue;
          const FleetFolder to{.root = folder.path(), .folder = name};
          check(worker.save_persistables(to));
          EXPECT_EQ(worker.save_persistables(to).ok(), w != 0) << "worker 0 replaces no files";
        }
        if (first != 0) {
          check(worker.save_persistables({.root = folder.path(), .folder = name}));
          check(worker.save_inference_model({.root = folder.path(), .folder = "model"}, {"x"},
                                            {net.guess()}));
        }
        check(worker.stop_worker());
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  train(net.after(0), 0, kTranspiledSteps, "half");
  net.expect_same(folder / "half", 2, true);
  train(folder / "half", 2, 2, "whole");
  net.expect_same(folder / "whole", kTranspiledSteps, true);
  Session model = value_of(Session::open_model(folder / "model"));
  Arrays feeds = batch(0);
  feeds.erase("t");
  EXPECT_EQ(value_of(model.run(feeds)).begin()->second.dims.front(), 8);
}

// Two steps, then the values before them: the job makes the steps of a new one.
TEST(TranspiledFleets, LoadAModelWhileTheyRun) {
  for (const TranspilerStrategy& strategy :
       {TranspilerStrategy::sync(), TranspilerStrategy::half_async()}) {
    const int workers = strategy.config.sync_mode ? 2 : 1;
    const TempFolder folder;
    const OneProcess net(folder);
    const Connection connection = Connection::in_process();
    FleetServers servers(connection, net, workers, strategy, net.after(0));
    std::vector<std::thread> threads;
    for (int w = 0; w < workers; ++w) {
      threads.emplace_back([&, w] {
        Fleet worker = started(connection, net, w, workers, strategy);
        for (int step = 0; step < 2; ++step) check(worker.step(batch(step + 5)).status());
        const std::string root = folder.path();
        EXPECT_EQ(worker.load_model({.root = root, .folder = "nothing"}).ok(), w != 0);
        check(worker.load_model({.root = root, .folder = "after0"}));
        for (int step = 0; step < kTranspiledSteps; ++step)
          check(worker.step(batch(step)).status());
        check(worker.wait_for_all());
        check(worker.save_persistables({.root = root, .folder = "saved"}));
        check(worker.stop_worker());
      });
    }
    for (std::thread& thread : threads) thread.join();
    net.expect_same(folder / "saved", kTranspiledSteps, true);
  }
}

TEST(TranspiledFleets, ServersThatMayGoBackLoadNoModel) {
  const TempFolder folder;
  const OneProcess net(folder);
  const TranspilerStrategy strategy = TranspilerStrategy::sync();
  const Connection connection = Connection::in_process();
  FleetServers servers(connection, net, 1, strategy, net.after(0),
                       {.snapshot_root = folder / "snapshots", .snapshot_every = 2});
  Fleet worker = started(connection, net, 0, 1, strategy);
  for (int step = 0; step < kTranspiledSteps; ++step) check(worker.step(batch(step)).status());
  EXPECT_THAT(worker.load_model({.root = folder.path(), .folder = "after0"}).to_string(),
              HasSubstr("setting vars by a call is not implemented while the servers"));
  check(worker.save_persistables({.root = folder.path(), .folder = "saved"}));
  check(worker.stop_worker());
  net.expect_same(folder / "saved", kTranspiledSteps, true);
}

TEST(TranspiledFleets, WorkersMeetAtABarrier) {
  const TempFolder folder;
  const OneProcess net(folder);
  for (const TranspilerStrategy& strategy :
       {TranspilerStrategy::sync(), TranspilerStrategy::async(), TranspilerStrategy::geo(2)}) {
    const Connection connection = Connection::in_process();
    FleetServers servers(connection, net, 2, strategy, net.after(0));
    std::atomic<int> rounds = 0;
    std::vector<std::thread> threads;
    for (int w = 0; w < 2; ++w) {
      threads.emplace_back([&, w] {
        Fleet worker = started(connection, net, w, 2, strategy);
        for (int round = 1; round <= 3; ++round) {
          check(worker.step(batch(round)).status());
          ++rounds;
          check(worker.barrier_worker());
          EXPECT_GE(rounds, 2 * round);
          check(worker.barrier_worker());
        }
        if (strategy.config.geo_sgd_mode) {
          EXPECT_EQ(worker.load_model({.root = folder.path(), .folder = "after0"}).code(),
                    StatusCode::kUnimplemented);
        }
        EXPECT_THAT(worker.shrink().to_string(), HasSubstr("have no typed tables"));
        check(worker.stop_worker());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(TranspiledFleets, CallsInTheWrongOrderAreErrors) {
  const TempFolder folder;
  const OneProcess net(folder);
  const TranspilerStrategy strategy = TranspilerStrategy::sync();
  Fleet fleet(Connection::in_process());
  EXPECT_THAT(fleet.distributed_optimizer(momentum(), strategy).to_string(),
              HasSubstr("call init() first"));
  check(fleet.init({.server_endpoints = {"a:1", "b:1"}}));
  check(fleet.distributed_optimizer(momentum(), strategy));
  EXPECT_EQ(fleet.main_program(), nullptr);
  for (const Status& status : {fleet.init_server(), fleet.run_server(), fleet.init_worker(),
                               fleet.stop_worker(), fleet.step({}).status()})
    EXPECT_THAT(status.to_string(), HasSubstr("call minimize() first"));
  check(fleet.minimize(net.main(), net.startup(), net.loss()));
  EXPECT_THAT(fleet.main_program()->root().back().type().str(), "fetch_barrier");
  EXPECT_THAT(fleet.init_server().to_string(), HasSubstr("expected a server, this process is a"));
  for (const Status& status :
       {fleet.stop_worker(), fleet.wait_for_all(), fleet.step({}).status(),
        fleet.save_persistables({.root = folder.path(), .folder = "x"}), fleet.get("x").status()})
    EXPECT_FALSE(status.ok());
  for (const Status& status :
       {fleet.barrier_worker(), fleet.shrink(), fleet.load_model({}), fleet.go_back()})
    EXPECT_THAT(status.to_string(), HasSubstr("call init_worker() first"));
  EXPECT_THAT(
      fleet.save_persistables({.root = folder.path(), .folder = "x", .mode = 1}).to_string(),
      HasSubstr("mode 1"));
  EXPECT_THAT(fleet.init_from_mpi().to_string(), HasSubstr("mpirun"));
}

TEST(TranspiledFleets, ServersSayWhatTheyLack) {
  const TempFolder folder;
  const OneProcess net(folder);
  Fleet server = prepared_transpiled(Connection::in_process(), net, {.is_server = true},
                                     TranspilerStrategy::sync());
  EXPECT_THAT(server.run_server().to_string(), HasSubstr("call init_server() first"));
  EXPECT_THAT(server.init_server(folder / "nothing").to_string(),
              HasSubstr("there is no such folder"));
  EXPECT_THAT(server.init_server(net.after(0), {"emb"}).to_string(), HasSubstr("typed tables"));
  EXPECT_THAT(server.init_worker().to_string(), HasSubstr("expected a worker"));
}

std::string refusal(TranspilerStrategy strategy, const MinimizeOptions& optimizer = momentum()) {
  Fleet fleet(Connection::in_process());
  check(fleet.init({.server_endpoints = {"a:1"}}));
  return fleet.distributed_optimizer(optimizer, strategy).to_string();
}

TEST(TranspilerStrategies, AreThoseOfTheOriginal) {
  EXPECT_TRUE(TranspilerStrategy::sync().config.sync_mode);
  transpiler::DistributeTranspilerConfig config;
  config.sync_mode = false;
  EXPECT_TRUE(TranspilerStrategy::from(config).config.half_async);
  config.runtime_split_send_recv = true;
  EXPECT_FALSE(TranspilerStrategy::from(config).config.half_async);
  const auto of = [](bool a_sync, int64_t k_steps) {
    return TranspilerStrategy::from(
        FleetStrategy{.a_sync = a_sync, .a_sync_configs = {{"k_steps", k_steps}}});
  };
  EXPECT_TRUE(value_of(of(false, 0)).config.sync_mode);
  EXPECT_FALSE(value_of(of(true, 0)).config.geo_sgd_mode);
  EXPECT_EQ(value_of(of(true, 7)).config.geo_sgd_need_push_nums, 7);
  EXPECT_THAT(of(false, 7).status().to_string(), HasSubstr("k_steps: expected 0 without a_sync"));
  EXPECT_THAT(of(true, -1).status().to_string(), HasSubstr("k_steps"));
  EXPECT_THAT(TranspilerStrategy::from(FleetStrategy{.use_cvm = false}).status().to_string(),
              HasSubstr("strategy.use_cvm"));
}

TEST(TranspilerStrategies, RefuseWhatIsNoMode) {
  TranspilerStrategy strategy = TranspilerStrategy::geo(3);
  strategy.config.sync_mode = true;
  EXPECT_THAT(refusal(strategy), HasSubstr("config.geo_sgd_mode"));
  strategy = TranspilerStrategy::sync();
  strategy.config.half_async = true;
  EXPECT_THAT(refusal(strategy), HasSubstr("config.half_async"));
  strategy = TranspilerStrategy::sync();
  strategy.config.mode = "nccl2";
  EXPECT_THAT(refusal(strategy), HasSubstr("config.mode: expected pserver"));
  EXPECT_THAT(refusal(TranspilerStrategy::sync(), {.learning_rate = SteppedRate{0.1}}),
              HasSubstr("a learning rate that is set in each step"));
}

}  // namespace
}  // namespace millrace::api
