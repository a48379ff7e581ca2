// Data-parallel processes (here: threads with a group each) train as one device does; strategy
// fields change only speed; long runs do not use more memory; errors at any step do not cause a
// hang.

#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/collective/group_link.h"
#include "executor/collective/shared_group.h"
#include "executor/standard_runtime.h"
#include "tests/executor/parallel/memory_use.h"
#include "tests/executor/parallel/small_job.h"
#include "tests/support/sanitizers.h"

namespace millrace::executor {
namespace {

using ::testing::HasSubstr;

constexpr int kTrainersSteps = 4;

// Rows of a batch that belong to one of the given number of trainers.
NamedValues part_of_trainers(const NamedValues& all, int trainer, int trainers) {
  NamedValues part;
  for (const auto& [name, value] : all) {
    const Tensor& whole = *value.get_if<Tensor>();
    const int64_t rows = whole.dim(0) / trainers;
    EXPECT_TRUE(part[name]
                    .as<Tensor>()
                    .copy_from(whole.share_rows(trainer * rows, (trainer + 1) * rows))
                    .ok());
  }
  return part;
}

std::vector<float> weights(const Job& job) {
  std::vector<float> all = floats(*job.scope.find("w"));
  const std::vector<float> b = floats(*job.scope.find("b"));
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

void expect_near_trainers(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6) << i;
}

// Trains with several trainers of several devices; the weights of trainer 0.
std::vector<float> train_together(int trainers, int device_count, int inter_ranks,
                                  ReduceStrategy strategy = ReduceStrategy::kAllReduce) {
  auto groups = make_thread_groups(trainers, 20'000);
  EXPECT_TRUE(groups.ok());
  std::vector<std::vector<float>> result(static_cast<size_t>(trainers));
  std::vector<std::thread> threads;
  for (int trainer = 0; trainer < trainers; ++trainer) {
    threads.emplace_back([&, trainer] {
      const auto at = static_cast<size_t>(trainer);
      auto link = make_group_link(*(*groups)[at], inter_ranks);
      ASSERT_TRUE(link.ok()) << link.status().to_string();
      ParallelOptions options = devices(device_count);
      options.trainers = link->get();
      options.build_strategy.num_trainers = trainers;
      options.build_strategy.trainer_id = trainer;
      options.build_strategy.reduce_strategy = strategy;
      Job job(options);
      std::vector<Value> results;
      for (int step = 0; step < kTrainersSteps; ++step) {
        const NamedValues part = part_of_trainers(batch(8, step), trainer, trainers);
        const Status status = job.executor->run(ParallelFeeds::split(part), {"loss"}, results);
        ASSERT_TRUE(status.ok()) << status.to_string();
      }
      result[at] = weights(job);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& each : result) EXPECT_EQ(each, result[0]);
  return result[0];
}

std::vector<float> train_alone() {
  Job job(devices(1));
  job.train(kTrainersSteps, 8);
  return weights(job);
}

TEST(Trainers, TrainAsOneDeviceDoes) {
  const std::vector<float> alone = train_alone();
  expect_near_trainers(train_together(2, 1, 0), alone);
  expect_near_trainers(train_together(2, 2, 0), alone);
  expect_near_trainers(train_together(4, 1, 0), alone);
  expect_near_trainers(train_together(4, 2, 2), alone);
  expect_near_trainers(train_together(2, 2, 0, ReduceStrategy::kReduce), alone);
}

TEST(Trainers, StartFromTheValuesOfTheFirst) {
  auto groups = make_thread_groups(2, 20'000);
  ASSERT_TRUE(groups.ok());
  std::vector<std::thread> threads;
  for (int trainer = 0; trainer < 2; ++trainer) {
    threads.emplace_back([&, trainer] {
      auto link = make_group_link(*(*groups)[static_cast<size_t>(trainer)]);
      Scope scope;
      const float start = trainer == 0 ? 0.5F : -7.0F;
      scope.local("w") = tensor_value({3, 1}, {start, start, start});
      scope.local("b") = tensor_value({1}, {start});
      scope.local("lr") = tensor_value({1}, {0.1F});
      ParallelOptions options = devices(1);
      options.trainers = link->get();
      options.build_strategy.num_trainers = 2;
      options.build_strategy.trainer_id = trainer;
      auto made =
          ParallelExecutor::create(standard_runtime(), *linear_regression(), scope, options);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      EXPECT_THAT(floats(*scope.find("w")), ::testing::Each(0.5F));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Trainers, SayThatTheyHoldOtherVars) {
  auto groups = make_thread_groups(2, 20'000);
  ASSERT_TRUE(groups.ok());
  std::vector<std::thread> threads;
  for (int trainer = 0; trainer < 2; ++trainer) {
    threads.emplace_back([&, trainer] {
      auto link = make_group_link(*(*groups)[static_cast<size_t>(trainer)]);
      Scope scope;
      scope.local("w") = tensor_value({3, 1}, {1, 2, 3});
      if (trainer == 0) scope.local("b") = tensor_value({1}, {1});
      ParallelOptions options = devices(1);
      options.trainers = link->get();
      options.build_strategy.num_trainers = 2;
      options.build_strategy.trainer_id = trainer;
      auto made =
          ParallelExecutor::create(standard_runtime(), *linear_regression(), scope, options);
      EXPECT_THAT(made.status().message(),
                  HasSubstr("1 of 2 trainers have other persistable vars"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A trainer that fails notifies the other, which does not wait for its deadline.
TEST(Trainers, TellEachOtherOfAFailure) {
  auto groups = make_thread_groups(2, 60'000);
  ASSERT_TRUE(groups.ok());
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int trainer = 0; trainer < 2; ++trainer) {
    threads.emplace_back([&, trainer] {
      auto link = make_group_link(*(*groups)[static_cast<size_t>(trainer)]);
      ParallelOptions options = devices(1);
      options.trainers = link->get();
      options.build_strategy.num_trainers = 2;
      options.build_strategy.trainer_id = trainer;
      Job job(options);
      NamedValues feeds = batch(4, 0);
      if (trainer == 1) feeds.erase("t");
      std::vector<Value> results;
      const Status status = job.executor->run(ParallelFeeds::split(feeds), {"loss"}, results);
      EXPECT_FALSE(status.ok());
      if (trainer == 0) {
        EXPECT_THAT(status.to_string(), HasSubstr("the input holds no value"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

// Fields of the BuildStrategy that name optimizations: rewrites that the executor makes anyway, or
// that do not help on a CPU. Losses stay the same.
TEST(BuildStrategyTest, FusionFieldsDoNotChangeLosses) {
  using Change = void (*)(BuildStrategy&);
  const std::pair<const char*, Change> changes[] = {
      {"fuse_all_reduce_ops", [](BuildStrategy& b) { b.fuse_all_reduce_ops = false; }},
      {"fuse_broadcast_ops", [](BuildStrategy& b) { b.fuse_broadcast_ops = false; }},
      {"fuse_all_optimizer_ops", [](BuildStrategy& b) { b.fuse_all_optimizer_ops = true; }},
      {"fuse_elewise_add_act_ops", [](BuildStrategy& b) { b.fuse_elewise_add_act_ops = true; }},
      {"fuse_bn_act_ops", [](BuildStrategy& b) { b.fuse_bn_act_ops = true; }},
      {"fuse_bn_add_act_ops", [](BuildStrategy& b) { b.fuse_bn_add_act_ops = false; }},
      {"fuse_relu_depthwise_conv", [](BuildStrategy& b) { b.fuse_relu_depthwise_conv = true; }},
      {"fuse_gemm_epilogue", [](BuildStrategy& b) { b.fuse_gemm_epilogue = true; }},
      {"fused_attention", [](BuildStrategy& b) { b.fused_attention = true; }},
      {"fused_feedforward", [](BuildStrategy& b) { b.fused_feedforward = true; }},
      {"fuse_adamw", [](BuildStrategy& b) { b.fuse_adamw = true; }},
      {"enable_auto_fusion", [](BuildStrategy& b) { b.enable_auto_fusion = true; }},
      {"memory_optimize", [](BuildStrategy& b) { b.memory_optimize = false; }},
      {"enable_inplace", [](BuildStrategy& b) { b.enable_inplace = false; }},
      {"enable_addto", [](BuildStrategy& b) { b.enable_addto = true; }},
      {"sequential", [](BuildStrategy& b) { b.enable_sequential_execution = true; }},
      {"fix_op_run_order", [](BuildStrategy& b) { b.fix_op_run_order = true; }},
      {"no lock", [](BuildStrategy& b) { b.remove_unnecessary_lock = false; }},
      {"backward deps", [](BuildStrategy& b) { b.enable_backward_optimizer_op_deps = false; }},
  };
  for (const ReduceStrategy strategy : {ReduceStrategy::kAllReduce, ReduceStrategy::kReduce}) {
    ParallelOptions options = devices(2);
    options.build_strategy.reduce_strategy = strategy;
    Job plain(options);
    const auto expected = plain.train(kTrainersSteps, 8);
    for (const auto& [name, change] : changes) {
      ParallelOptions changed = options;
      change(changed.build_strategy);
      Job job(changed);
      EXPECT_EQ(job.train(kTrainersSteps, 8), expected) << name;
    }
  }
}

// Few runs by default; the environment variable MILLRACE_LONG_RUNS sets another number.
TEST(ParallelRuns, DoNotGrow) {
  if (spawn::kSanitizerKeepsMemory) GTEST_SKIP() << "a sanitizer keeps memory that was freed";
  const char* const asked = std::getenv("MILLRACE_LONG_RUNS");
  const int runs = asked == nullptr ? 1000 : std::atoi(asked);
  ParallelOptions options = devices(2);
  options.exec_strategy.num_iteration_per_drop_scope = 7;
  Job job(options);
  const NamedValues feeds = batch(8, 0);
  std::vector<Value> results;
  int64_t before = 0;
  for (int run = 0; run < runs; ++run) {
    ASSERT_TRUE(job.executor->run(ParallelFeeds::split(feeds), {"loss"}, results).ok());
    if (run == runs / 5) before = resident_kb();
  }
  EXPECT_LT(resident_kb() - before, 2048);
}

// Steps that fail on any device, between steps that do not: the error is reported, nothing hangs,
// and the next step works.
TEST(ParallelRuns, GoOnAfterErrorsAtRandomSteps) {
  Job job(devices(2));
  std::mt19937 random(5);
  std::vector<Value> results;
  int failures = 0;
  for (int step = 0; step < 60; ++step) {
    std::vector<NamedValues> feeds;
    for (int d = 0; d < 2; ++d) feeds.push_back(batch(4, step + d));
    const auto bad = random() % 4;
    if (bad < 2) feeds[bad].erase("t");
    const Status status = job.executor->run(ParallelFeeds::list(feeds), {"loss"}, results);
    EXPECT_EQ(status.ok(), bad >= 2) << step;
    if (status.ok()) continue;
    ++failures;
    EXPECT_THAT(status.to_string(), HasSubstr("'t'"));
    EXPECT_THAT(status.to_string(), HasSubstr("on device " + std::to_string(bad)));
  }
  EXPECT_GT(failures, 10);
}

// Devices that train separately keep separate weights.
TEST(BuildStrategyTest, AsyncModeLetsDevicesTrainApart) {
  ParallelOptions options = devices(2);
  options.build_strategy.async_mode = true;
  options.build_strategy.gradient_scale_strategy = GradientScale::kOne;
  Job job(options);
  std::vector<NamedValues> feeds;
  feeds.push_back(batch(4, 1));
  feeds.push_back(batch(4, 2));
  std::vector<Value> results;
  ASSERT_TRUE(job.executor->run(ParallelFeeds::list(feeds), {"loss"}, results).ok());
  EXPECT_NE(floats(*job.executor->local_scope(0).find("w")),
            floats(*job.executor->local_scope(1).find("w")));
}

}  // namespace
}  // namespace millrace::executor
