// Properties of data-parallel runs over random networks. The environment variable
// MILLRACE_RANDOM_NETS sets the number of networks, MILLRACE_LONG_RUNS the number of runs of one.

#include <cstdlib>
#include <filesystem>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/standard_runtime.h"
#include "framework/base/file.h"
#include "tests/executor/parallel/memory_use.h"
#include "tests/executor/parallel/random_net.h"
#include "tests/executor/parallel/small_job.h"
#include "tests/support/sanitizers.h"

namespace millrace::executor {
namespace {

using ::testing::HasSubstr;
using Losses = std::vector<std::vector<float>>;

constexpr int kRandomNetsSteps = 3;
constexpr int64_t kRandomNetsRows = 24;  // divisible by 2, 3 and 4, and by two micro-batches each

int from_environment(const char* name, int fallback) {
  const char* const text = std::getenv(name);
  return text == nullptr ? fallback : std::atoi(text);
}

int net_count() {
  return from_environment("MILLRACE_RANDOM_NETS", 20);
}

Losses train_random_nets(const RandomNet& net, const RandomNet::Run& run, int first = 0,
                         int steps = kRandomNetsSteps) {
  Losses losses;
  std::vector<Value> results;
  for (int step = first; step < first + steps; ++step) {
    const NamedValues feeds = net.feeds(kRandomNetsRows, step);
    const Status status = run.executor->run(ParallelFeeds::split(feeds), {net.loss()}, results);
    EXPECT_TRUE(status.ok()) << net.describe() << "\n" << status.to_string();
    if (!status.ok()) return losses;
    losses.push_back(floats(results[0]));
  }
  return losses;
}

// Rounding is relative to the largest element of a var.
void expect_near_random_nets(const RandomNet& net, const std::string& what,
                             const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size()) << net.describe() << ": " << what;
  float largest = 1;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], 1e-6F * largest) << net.describe() << ": " << what << i;
}

float mean_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return static_cast<float>(sum / static_cast<double>(values.size()));
}

// Options that must not change the results.
ParallelOptions any_options(std::mt19937& random) {
  const auto chance = [&] { return random() % 2 == 0; };
  ParallelOptions options = devices(2 + static_cast<int>(random() % 3));
  BuildStrategy& build = options.build_strategy;
  if (chance()) build.reduce_strategy = ReduceStrategy::kReduce;
  build.fuse_all_reduce_ops = chance();
  build.bucket_bytes = chance() ? 1 << 20 : 64;
  build.fuse_broadcast_ops = chance();
  if (chance()) build.memory_optimize = chance();
  build.enable_inplace = chance();
  build.enable_backward_optimizer_op_deps = chance();
  if (chance()) options.exec_strategy.num_threads = 1 + static_cast<int>(random() % 4);
  options.exec_strategy.num_iteration_per_drop_scope = 1 + static_cast<int>(random() % 3);
  options.optimize = random() % 4 != 0;
  return options;
}

TEST(RandomNets, TrainOnSeveralDevicesAsOnOne) {
  std::mt19937 random(1);
  for (int seed = 0; seed < net_count(); ++seed) {
    const RandomNet net(static_cast<uint32_t>(seed));
    const RandomNet::Run one = net.start(devices(1));
    const Losses expected = train_random_nets(net, one);
    ParallelOptions options = any_options(random);
    // statistics of a micro-batch are not those of the batch
    if (!net.normalises_batches() && !net.updates_between() && random() % 3 == 0)
      options.build_strategy.micro_batches = 2;
    const RandomNet::Run several = net.start(options);
    const Losses losses = train_random_nets(net, several);
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t step = 0; step < losses.size(); ++step)
      expect_near_random_nets(net, "loss ", {mean_of(losses[step])}, expected[step]);
    const auto wanted = net.variables(one);
    const auto found = net.variables(several);
    for (size_t i = 0; i < wanted.size(); ++i)
      expect_near_random_nets(net, wanted[i].first + " ", found[i].second, wanted[i].second);
    if (HasFailure()) return;
  }
}

TEST(RandomNets, CannotAccumulateAcrossUpdates) {
  uint32_t seed = 0;
  while (!RandomNet(seed).updates_between()) ++seed;
  const RandomNet net(seed);
  ParallelOptions options = devices(1);
  options.loss_name = net.loss();
  options.build_strategy.micro_batches = 2;
  Scope scope;
  EXPECT_THAT(
      ParallelExecutor::create(standard_runtime(), net.main(), scope, options).status().to_string(),
      HasSubstr("micro_batches 2: the program computes gradients after an update"));
}

using Change = void (*)(ParallelOptions&);
constexpr std::pair<const char*, Change> kToggles[] = {
    {"fuse_all_reduce_ops", [](auto& o) { o.build_strategy.fuse_all_reduce_ops = false; }},
    {"fuse_broadcast_ops", [](auto& o) { o.build_strategy.fuse_broadcast_ops = false; }},
    {"fuse_all_optimizer_ops", [](auto& o) { o.build_strategy.fuse_all_optimizer_ops = true; }},
    {"fuse_elewise_add_act_ops", [](auto& o) { o.build_strategy.fuse_elewise_add_act_ops = true; }},
    {"fuse_bn_act_ops", [](auto& o) { o.build_strategy.fuse_bn_act_ops = true; }},
    {"fuse_bn_add_act_ops", [](auto& o) { o.build_strategy.fuse_bn_add_act_ops = false; }},
    {"fuse_relu_depthwise_conv", [](auto& o) { o.build_strategy.fuse_relu_depthwise_conv = true; }},
    {"fuse_gemm_epilogue", [](auto& o) { o.build_strategy.fuse_gemm_epilogue = true; }},
    {"fused_attention", [](auto& o) { o.build_strategy.fused_attention = true; }},
    {"fused_feedforward", [](auto& o) { o.build_strategy.fused_feedforward = true; }},
    {"fuse_adamw", [](auto& o) { o.build_strategy.fuse_adamw = true; }},
    {"enable_auto_fusion", [](auto& o) { o.build_strategy.enable_auto_fusion = true; }},
    {"memory_optimize", [](auto& o) { o.build_strategy.memory_optimize = false; }},
    {"enable_inplace", [](auto& o) { o.build_strategy.enable_inplace = false; }},
    {"enable_addto", [](auto& o) { o.build_strategy.enable_addto = true; }},
    {"sequential", [](auto& o) { o.build_strategy.enable_sequential_execution = true; }},
    {"fix_op_run_order", [](auto& o) { o.build_strategy.fix_op_run_order = true; }},
    {"remove_unnecessary_lock", [](auto& o) { o.build_strategy.remove_unnecessary_lock = false; }},
    {"cache_runtime_context", [](auto& o) { o.build_strategy.cache_runtime_context = true; }},
    {"enable_backward_optimizer_op_deps",
     [](auto& o) { o.build_strategy.enable_backward_optimizer_op_deps = false; }},
    {"mkldnn_enabled_op_types",
     [](auto& o) { o.build_strategy.mkldnn_enabled_op_types = {"relu"}; }},
    {"num_threads", [](auto& o) { o.exec_strategy.num_threads = 1; }},
    {"num_iteration_per_drop_scope",
     [](auto& o) { o.exec_strategy.num_iteration_per_drop_scope = 1; }},
    {"allow_op_delay", [](auto& o) { o.exec_strategy.allow_op_delay = true; }},
    {"use_thread_barrier", [](auto& o) { o.exec_strategy.use_thread_barrier = true; }},
    {"use_experimental_executor",
     [](auto& o) { o.exec_strategy.use_experimental_executor = false; }},
    {"optimize", [](auto& o) { o.optimize = false; }},
};

TEST(RandomNets, LoseNothingByStrategyFields) {
  for (int seed = 0; seed < std::max(net_count() / 2, 1); ++seed) {
    const RandomNet net(static_cast<uint32_t>(seed + 1000));
    ParallelOptions options = devices(2);
    if (seed % 3 == 1) options.build_strategy.reduce_strategy = ReduceStrategy::kReduce;
    const Losses expected = train_random_nets(net, net.start(options));
    for (const auto& [name, change] : kToggles) {
      ParallelOptions changed = options;
      change(changed);
      const Losses losses = train_random_nets(net, net.start(changed));
      ASSERT_EQ(losses.size(), expected.size());
      for (size_t step = 0; step < losses.size(); ++step)
        expect_near_random_nets(net, std::string(name) + ", loss ", losses[step], expected[step]);
      if (HasFailure()) return;
    }
  }
}

// The n-th op from now on fails.
class RandomNetsTestSaboteur final : public OpObserver {
 public:
  Status after(const CompiledOp& /*compiled*/, Value* const* /*table*/) override {
    return countdown_-- == 0 ? Status(StatusCode::kExecution, "sabotage") : Ok();
  }
  void arm(int64_t ops) { countdown_ = ops; }
  [[nodiscard]] bool has_struck() const { return countdown_ < 0; }

 private:
  int64_t countdown_ = -1;
};

// An error in any op of any device, also in loops and exchanges, is reported; nothing hangs; the
// next run works, and its results are as if nothing had been updated.
TEST(RandomNets, GoOnAfterErrorsInAnyOp) {
  std::mt19937 random(3);
  int untouched = 0;
  for (int seed = 0; seed < net_count(); ++seed) {
    const RandomNet net(static_cast<uint32_t>(seed + 2000));
    const ParallelOptions options = any_options(random);
    const Losses expected = train_random_nets(net, net.start(options));
    const RandomNet::Run run = net.start(options);
    std::vector<RandomNetsTestSaboteur> saboteurs(static_cast<size_t>(options.devices));
    for (int d = 0; d < options.devices; ++d)
      run.executor->observe(d, &saboteurs[static_cast<size_t>(d)]);
    train_random_nets(net, run, 0, 1);
    for (int trial = 0; trial < 6; ++trial) {
      const auto device = random() % saboteurs.size();
      saboteurs[device].arm(static_cast<int64_t>(random() % 120));
      std::vector<Value> results;
      const NamedValues feeds = net.feeds(kRandomNetsRows, 1);
      const auto before = net.variables(run);
      const Status status = run.executor->run(ParallelFeeds::split(feeds), {net.loss()}, results);
      ASSERT_EQ(status.ok(), !saboteurs[device].has_struck()) << net.describe();
      saboteurs[device].arm(-1);
      if (status.ok()) break;  // the step has fewer ops
      EXPECT_THAT(status.to_string(), HasSubstr("sabotage")) << net.describe();
      EXPECT_THAT(status.to_string(), HasSubstr("on device " + std::to_string(device)));
      if (status.to_string().find("are unchanged") == std::string::npos) break;
      ++untouched;
      if (net.normalises_batches()) continue;  // statistics may have changed
      EXPECT_EQ(net.variables(run), before) << net.describe();
      if (trial == 5) {
        EXPECT_EQ(train_random_nets(net, run, 1, 1).back(), expected[1]) << net.describe();
      }
    }
    for (RandomNetsTestSaboteur& saboteur : saboteurs) saboteur.arm(-1);
    EXPECT_EQ(train_random_nets(net, run, 2, 1).size(), 1U) << net.describe();
    if (HasFailure()) return;
  }
  EXPECT_GT(untouched, net_count()) << "most errors come before updates";
}

// Control flow, sparse rows and convolutions, many times.
TEST(RandomNets, DoNotGrow) {
  if (spawn::kSanitizerKeepsMemory) GTEST_SKIP() << "a sanitizer keeps memory that was freed";
  const int runs = from_environment("MILLRACE_LONG_RUNS", 300);
  for (const uint32_t seed : {2U, 5U, 9U}) {
    const RandomNet net(seed);
    ParallelOptions options = devices(2);
    options.exec_strategy.num_iteration_per_drop_scope = 7;
    const RandomNet::Run run = net.start(options);
    const NamedValues feeds = net.feeds(kRandomNetsRows, 0);
    std::vector<Value> results;
    int64_t before = 0;
    for (int i = 0; i < runs; ++i) {
      ASSERT_TRUE(run.executor->run(ParallelFeeds::split(feeds), {net.loss()}, results).ok());
      if (i == runs / 5) before = resident_kb();
    }
    EXPECT_LT(resident_kb() - before, 2048) << net.describe();
  }
}

// A drawing of the graph as given, rewritten, and of every device, including loops.
TEST(RandomNets, DrawGraphs) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("millrace_graphs_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  for (int seed = 0; seed < 4; ++seed) {
    const RandomNet net(static_cast<uint32_t>(seed));
    ParallelOptions options = devices(2);
    options.build_strategy.debug_graphviz_path = (folder / "net").string();
    train_random_nets(net, net.start(options));
    for (const char* const name : {"_original_graph", "_fused_graph", "_multi_devices_graph"}) {
      const auto text = read_file((folder / "net").string() + name, 1 << 24);
      ASSERT_TRUE(text.ok()) << name;
      EXPECT_THAT(*text, HasSubstr("digraph"));
      EXPECT_THAT(*text, HasSubstr(net.loss()));
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace millrace::executor
