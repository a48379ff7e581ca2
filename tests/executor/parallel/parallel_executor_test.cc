#include "executor/parallel/parallel_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/parallel/device_programs.h"
#include "executor/parallel/timeline.h"
#include "executor/standard_runtime.h"
#include "tests/executor/parallel/small_job.h"

namespace millrace::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<float> param(const Job& job, int device, const char* name) {
  return floats(*job.executor->local_scope(device).find(name));
}

void expect_near_parallel_executor(const std::vector<float>& a, const std::vector<float>& b,
                                   float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << "element " << i;
}

TEST(ParallelExecutorTest, TrainsAsOneDeviceDoes) {
  Job one(devices(1));
  one.train(5, 8);
  for (const int count : {2, 4}) {
    Job job(devices(count));
    EXPECT_THAT(job.train(5, 8).back(), SizeIs(static_cast<size_t>(count)));
    for (int d = 0; d < count; ++d) {
      expect_near_parallel_executor(param(job, d, "w"), param(one, 0, "w"), 1e-6F);
      EXPECT_EQ(param(job, d, "w"), param(job, 0, "w")) << "device " << d;
    }
  }
}

TEST(ParallelExecutorTest, GivesTheSameBitsEveryTime) {
  const auto run = [](const ParallelOptions& options) {
    Job job(options);
    auto losses = job.train(10, 13);
    losses.push_back(param(job, 0, "w"));
    return losses;
  };
  const auto expected = run(devices(4));
  for (int repeat = 0; repeat < 5; ++repeat) EXPECT_EQ(run(devices(4)), expected);
  // bundling of gradients, the device that updates, and memory use do not matter either
  for (int variant = 0; variant < 8; ++variant) {
    ParallelOptions options = devices(4);
    if (variant == 0) options.build_strategy.fuse_all_reduce_ops = false;
    if (variant == 1) options.build_strategy.reduce_strategy = ReduceStrategy::kReduce;
    if (variant == 2) options.build_strategy.memory_optimize = false;
    if (variant == 3) options.build_strategy.enable_inplace = false;
    if (variant == 4) options.build_strategy.enable_backward_optimizer_op_deps = false;
    if (variant == 5) options.exec_strategy.num_threads = 2;  // fewer than devices
    if (variant == 7) options.build_strategy.share_updates = false;
    if (variant == 6) options.exec_strategy.num_iteration_per_drop_scope = 3;
    EXPECT_EQ(run(options), expected) << "variant " << variant;
  }
}

// The mean of the means of unequal shares is not the mean over all rows, unless they are weighted.
TEST(ParallelExecutorTest, WeighsUnevenParts) {
  Job one(devices(1));
  one.train(4, 7);
  Job plain(devices(2));
  plain.train(4, 7);
  ParallelOptions options = devices(2);
  options.build_strategy.gradient_scale_strategy = GradientScale::kWeighted;
  Job weighted(options);
  weighted.train(4, 7);
  expect_near_parallel_executor(param(weighted, 1, "w"), param(one, 0, "w"), 1e-6F);
  EXPECT_GT(std::abs(param(plain, 0, "w")[0] - param(one, 0, "w")[0]), 1e-4F);
}

TEST(ParallelExecutorTest, AddsUpMicroBatches) {
  Job one(devices(1));
  one.train(4, 12);
  for (const bool reduce : {false, true}) {
    ParallelOptions options = devices(2);
    options.build_strategy.micro_batches = 3;
    if (reduce) options.build_strategy.reduce_strategy = ReduceStrategy::kReduce;
    Job job(options);
    EXPECT_THAT(job.train(4, 12).back(), SizeIs(6));
    expect_near_parallel_executor(param(job, 1, "w"), param(one, 0, "w"), 1e-6F);
  }
}

TEST(ParallelExecutorTest, StartsFromOneIfAsked) {
  ParallelOptions options = devices(2);
  options.build_strategy.gradient_scale_strategy = GradientScale::kOne;
  Job sum(options);
  Job mean(devices(2));
  sum.scope.find_local("lr")->as<Tensor>().data<float>()[0] = 0.05F;
  sum.executor->local_scope(1).find_local("lr")->as<Tensor>().data<float>()[0] = 0.05F;
  sum.train(3, 6);
  mean.train(3, 6);
  expect_near_parallel_executor(param(sum, 0, "w"), param(mean, 0, "w"), 1e-6F);
}

TEST(ParallelExecutorTest, TakesTheGradientOfTheLossFromTheFeed) {
  ParallelOptions options = devices(2);
  options.build_strategy.gradient_scale_strategy = GradientScale::kCustomized;
  Job job(options);
  Job one(devices(1));
  one.train(1, 8);
  const NamedValues all = batch(8, 0);
  std::vector<NamedValues> feeds(2);
  const std::vector<std::pair<int64_t, int64_t>> ranges{{0, 5}, {5, 8}};
  for (size_t d = 0; d < 2; ++d) {
    const auto [begin, end] = ranges[d];
    for (const auto& [name, value] : all)
      feeds[d][name].as<Tensor>() = value.get_if<Tensor>()->share_rows(begin, end);
    feeds[d]["loss@GRAD"] = tensor_value({1}, {static_cast<float>(end - begin) / 8});
  }
  std::vector<std::vector<Value>> results;
  const Status status = job.executor->run_unmerged(ParallelFeeds::list(feeds), {"loss"}, results);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(results[0], SizeIs(2));
  expect_near_parallel_executor(param(job, 0, "w"), param(one, 0, "w"), 1e-6F);
  feeds[1].erase("loss@GRAD");
  EXPECT_THAT(job.executor->run_unmerged(ParallelFeeds::list(feeds), {}, results).to_string(),
              HasSubstr("'loss@GRAD': gradient_scale_strategy customized: device 1 is not fed"));
}

TEST(ParallelExecutorTest, SharesVariables) {
  Job job(devices(2));
  ParallelOptions options;
  options.devices = 2;
  options.share_vars_from = job.executor.get();
  Scope unused;
  const auto program = linear_inference();
  EXPECT_THAT(
      ParallelExecutor::create(standard_runtime(), *program, unused, options).status().to_string(),
      HasSubstr("share_vars_from: that executor has not run yet"));
  job.train(3, 4);
  auto test = ParallelExecutor::create(standard_runtime(), *program, unused, options);
  ASSERT_TRUE(test.ok()) << test.status().to_string();
  NamedValues feeds;
  feeds["x"] = tensor_value({3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1});
  for (int round = 0; round < 2; ++round) {
    std::vector<Value> results;
    const Status status = (*test)->run(ParallelFeeds::split(feeds), {"y"}, results);
    ASSERT_TRUE(status.ok()) << status.to_string();
    std::vector<float> expected = param(job, 0, "w");
    for (float& value : expected) value += param(job, 0, "b")[0];
    expect_near_parallel_executor(floats(results[0]), expected, 1e-6F);
    job.train(1, 4);  // the other one continues
  }
}

TEST(ParallelExecutorTest, LeavesOutDevicesWithoutRowsInInference) {
  ParallelOptions options;
  options.devices = 4;
  Job job(options, linear_inference());
  for (const int64_t rows : {1, 3, 9}) {
    NamedValues feeds = batch(rows, 0);
    std::vector<Value> results;
    const Status status = job.executor->run(ParallelFeeds::split(feeds), {"y", "y"}, results);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_THAT(floats(results[1]), SizeIs(static_cast<size_t>(rows)));
  }
}

TEST(ParallelExecutorTest, JoinsParametersAndLeavesThemApart) {
  Job job(devices(2));
  std::vector<Value> merged;
  ASSERT_TRUE(job.executor->run(ParallelFeeds::split(batch(4, 0)), {"w", "y"}, merged).ok());
  EXPECT_THAT(merged[0].get_if<Tensor>()->dims(), ElementsAre(6, 1));
  EXPECT_THAT(merged[1].get_if<Tensor>()->dims(), ElementsAre(4, 1));
  std::vector<std::vector<Value>> apart;
  ASSERT_TRUE(job.executor->run_unmerged(ParallelFeeds::split(batch(5, 0)), {"y"}, apart).ok());
  EXPECT_THAT(apart[0][0].get_if<Tensor>()->dims(), ElementsAre(2, 1));
  EXPECT_THAT(apart[0][1].get_if<Tensor>()->dims(), ElementsAre(3, 1));
}

// Optimizing removes m, until a caller fetches it.
TEST(ParallelExecutorTest, FetchesWhatOptimizingHasRemoved) {
  Job job(devices(2));
  job.train(2, 4);
  EXPECT_THAT(job.executor->plan_text(), Not(HasSubstr(" m: ")));
  std::vector<Value> results;
  const Status status = job.executor->run(ParallelFeeds::split(batch(4, 0)), {"m"}, results);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(floats(results[0]), SizeIs(4));
  ParallelOptions options = devices(2);
  options.optimize = false;
  Job plain(options);
  Job fast(devices(2));
  const auto expected = plain.train(4, 6);
  const auto losses = fast.train(4, 6);
  for (size_t step = 0; step < expected.size(); ++step)
    expect_near_parallel_executor(losses[step], expected[step], 1e-6F);
}

TEST(ParallelExecutorTest, KeepsAFedLearningRate) {
  Job job(devices(2));
  NamedValues feeds = batch(4, 0);
  feeds["lr"] = tensor_value({1}, {0.0F});
  std::vector<Value> results;
  ASSERT_TRUE(job.executor->run(ParallelFeeds::split(feeds), {}, results).ok());
  const std::vector<float> start{0.3F, -0.2F, 0.1F};
  EXPECT_EQ(param(job, 1, "w"), start);
  job.train(1, 4);
  EXPECT_EQ(param(job, 1, "w"), start) << "the rate of the last run stays";
  feeds["lr"] = tensor_value({3}, {0, 0, 0});
  EXPECT_THAT(job.executor->run(ParallelFeeds::split(feeds), {}, results).to_string(),
              HasSubstr("'lr': feed of a persistable var: expected 1 or 2 rows, found 3"));
}

TEST(ParallelExecutorTest, DropsTemporaries) {
  ParallelOptions options = devices(2);
  options.exec_strategy.num_iteration_per_drop_scope = 3;
  Job job(options);
  std::vector<bool> needs;
  for (int step = 0; step < 7; ++step) {
    needs.push_back(job.executor->need_create_local_exe_scopes());
    job.train(1, 4);
  }
  EXPECT_THAT(needs, ElementsAre(true, false, false, true, false, false, true));
  EXPECT_FALSE(job.executor->need_create_local_exe_scopes());
  EXPECT_GT(job.executor->memory_bytes(1), 0);
  job.executor->drop_local_exe_scopes();
  EXPECT_TRUE(job.executor->need_create_local_exe_scopes());
  EXPECT_EQ(job.executor->memory_bytes(1), 0);
}

TEST(ParallelExecutorTest, DividesTheStateOfUpdates) {
  ParallelOptions options = devices(2);
  options.build_strategy.reduce_strategy = ReduceStrategy::kReduce;
  Job job(options);
  EXPECT_THAT(job.executor->plan_text(),
              ::testing::AllOf(HasSubstr("device 1: remove-feed-fetch,data-parallel{"),
                               HasSubstr("2 gradients in 4 exchanges")));
  job.train(1, 4);
  EXPECT_EQ(param(job, 0, "w"), param(job, 1, "w"));
}

TEST(ParallelExecutorTest, ShowsAllDevicesInOneTrace) {
  Job job(devices(2));
  Timeline timeline(2);
  for (int d = 0; d < 2; ++d) job.executor->observe(d, &timeline.lane(d));
  job.train(1, 4);
  EXPECT_THAT(timeline.chrome_json(), ::testing::AllOf(HasSubstr(R"("name": "device 1")"),
                                                       HasSubstr("shared_updates_end")));
  EXPECT_GT(timeline.load(1).exchange_ms, 0);
}

TEST(ParallelExecutorTest, LeavesOutOpsInADryRun) {
  ParallelOptions options = devices(2);
  options.exec_strategy.dry_run = true;
  Job job(options);
  EXPECT_THAT(job.train(2, 4).back(), SizeIs(0));
  EXPECT_THAT(param(job, 0, "w"), ElementsAre(0.3F, -0.2F, 0.1F));
}

// A program for parameter servers: gradients of all devices are summed, one device sends and
// receives.
TEST(ParallelExecutorTest, SpeaksWithServersOnce) {
  const auto program = program_of(R"(# millrace
block 0 {
  param w: f32(2, 1)
  var x: f32(-1, 2)
  var y: f32(-1, 1)
  var loss: f32(1)
  var loss@GRAD: f32(1)
  var y@GRAD: f32(-1, 1)
  var w@GRAD: f32(2, 1)
  mul X=x Y=w -> Out=y {op_role: 0}
  mean X=y -> Out=loss {op_role: 256}
  fill_constant -> Out=loss@GRAD {shape: [1], value: 1.0, dtype: 5, op_role: 257}
  mean_grad X=y Out@GRAD=loss@GRAD -> X@GRAD=y@GRAD {op_role: 1}
  mul_grad X=x Y=w Out@GRAD=y@GRAD -> Y@GRAD=w@GRAD {op_role: 1, op_role_var: ["w", "w@GRAD"]}
  send X=w@GRAD {epmap: ["127.0.0.1:1"], op_role: 4}
  recv -> Out=w {epmap: ["127.0.0.1:1"], op_role: 4}
}
)");
  for (const ReduceStrategy strategy : {ReduceStrategy::kAllReduce, ReduceStrategy::kReduce}) {
    ParallelOptions options = devices(2);
    options.build_strategy.reduce_strategy = strategy;
    std::vector<std::string> remarks;
    const auto made =
        make_device_programs(*program, *standard_runtime()->ops, options, {}, remarks);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const auto types = [](const Program& of) {
      std::vector<std::string> list;
      for (const Op& op : of.root().ops()) list.push_back(op.type().str());
      return list;
    };
    const std::vector<std::string> forward{"mul", "mean", "fill_constant", "mean_grad", "mul_grad"};
    std::vector<std::string> first = forward;
    first.insert(first.end(), {"exchange_begin", "exchange_end", "send", "recv", "exchange_begin",
                               "exchange_end"});
    std::vector<std::string> second = forward;
    second.insert(second.end(),
                  {"exchange_begin", "exchange_end", "exchange_begin", "exchange_end"});
    EXPECT_EQ(types(*(*made)[0]), first);
    EXPECT_EQ(types(*(*made)[1]), second);
    EXPECT_THAT(remarks, ::testing::Contains(HasSubstr("only device 0 communicates")));
  }
}

}  // namespace
}  // namespace millrace::executor
