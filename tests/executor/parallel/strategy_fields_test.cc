#include "executor/parallel/strategy_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/standard_runtime.h"
#include "tests/executor/parallel/small_job.h"

namespace millrace::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StrategyFields, AreSetByName) {
  BuildStrategy build;
  EXPECT_TRUE(set_field(build, "reduce_strategy", "Reduce").ok());
  EXPECT_EQ(build.reduce_strategy, ReduceStrategy::kReduce);
  EXPECT_TRUE(set_field(build, "gradient_scale_strategy", "one").ok());
  EXPECT_EQ(build.gradient_scale_strategy, GradientScale::kOne);
  EXPECT_TRUE(set_field(build, "memory_optimize", "False").ok());
  EXPECT_EQ(build.memory_optimize, false);
  EXPECT_TRUE(set_field(build, "memory_optimize", "none").ok());
  EXPECT_EQ(build.memory_optimize, std::nullopt);
  EXPECT_TRUE(set_field(build, "trainers_endpoints", "a:1,b:2").ok());
  EXPECT_THAT(build.trainers_endpoints, ElementsAre("a:1", "b:2"));
  EXPECT_TRUE(set_field(build, "mkldnn_enabled_op_types", "conv2d,relu").ok());
  EXPECT_THAT(build.mkldnn_enabled_op_types, ElementsAre("conv2d", "relu"));
  EXPECT_TRUE(set_field(build, "bucket_bytes", "1024").ok());
  EXPECT_EQ(build.bucket_bytes, 1024);
  EXPECT_TRUE(set_field(build, "debug_graphviz_path", "graphs/net").ok());
  EXPECT_EQ(build.debug_graphviz_path, "graphs/net");
  ExecutionStrategy exec;
  EXPECT_TRUE(set_field(exec, "num_threads", "3").ok());
  EXPECT_EQ(exec.num_threads, 3);
  EXPECT_TRUE(set_field(exec, "dry_run", "1").ok());
  EXPECT_TRUE(exec.dry_run);
}

TEST(StrategyFields, SayWhatIsWrong) {
  BuildStrategy build;
  EXPECT_THAT(set_field(build, "fuse_all_reduce_op", "true").to_string(),
              ::testing::AllOf(HasSubstr("build_strategy has no field 'fuse_all_reduce_op'"),
                               HasSubstr("did you mean 'fuse_all_reduce_ops'?")));
  EXPECT_THAT(set_field(build, "micro_batches", "two").to_string(),
              HasSubstr("build_strategy.micro_batches: cannot be 'two'"));
  EXPECT_THAT(set_field(build, "reduce_strategy", "ring").to_string(),
              HasSubstr("build_strategy.reduce_strategy: cannot be 'ring'"));
  ExecutionStrategy exec;
  EXPECT_THAT(set_field(exec, "num_thread", "2").to_string(), HasSubstr("'num_threads'"));
}

// A job of two devices with one field set to a value that all fields of its kind accept.
TEST(StrategyFields, AllRunOrAreRefusedByName) {
  const auto refused = {"allow_cuda_graph_capture", "build_cinn_pass", "sequential_run"};
  for (const std::string_view name : build_strategy_fields()) {
    ParallelOptions options = devices(2);
    if (!set_field(options.build_strategy, name, "true").ok() || name == "debug_graphviz_path" ||
        name == "trainers_endpoints")
      continue;
    if (name == "use_hierarchical_allreduce") continue;  // needs several trainers
    Job one(devices(1));
    Scope scope;
    for (const char* const var : {"w", "b", "lr"})
      scope.local(var) = std::move(*clone(*one.scope.find(var)));
    const auto made =
        ParallelExecutor::create(standard_runtime(), *linear_regression(), scope, options);
    const bool is_refused = std::find(refused.begin(), refused.end(), name) != refused.end();
    EXPECT_EQ(made.ok(), !is_refused) << name << ": " << made.status().to_string();
    if (is_refused) {
      EXPECT_EQ(made.status().code(), StatusCode::kUnimplemented);
      EXPECT_THAT(made.status().to_string(), HasSubstr(std::string(name)));
      continue;
    }
    std::vector<Value> results;
    EXPECT_TRUE((*made)->run(ParallelFeeds::split(batch(4, 0)), {"loss"}, results).ok()) << name;
  }
  for (const std::string_view name : execution_strategy_fields()) {
    ParallelOptions options = devices(2);
    if (!set_field(options.exec_strategy, name, "1").ok()) ADD_FAILURE() << name;
    Job(options).train(2, 4);
  }
}

// Factors of products are rounded on every device, as on one.
TEST(StrategyFields, ProductsMayBeRounded) {
  Job exact(devices(2));
  ParallelOptions options = devices(2);
  options.bf16_products = true;
  Job rounded(options);
  options.optimize = false;
  Job rounded_only(options);
  for (Job* const job : {&rounded, &rounded_only})
    EXPECT_THAT(job->executor->plan_text(), HasSubstr("2 products are rounded to bfloat16"));
  const auto expected = exact.train(4, 8);
  for (Job* const job : {&rounded, &rounded_only}) {
    const auto losses = job->train(4, 8);
    for (size_t step = 0; step < losses.size(); ++step) {
      for (size_t d = 0; d < 2; ++d)
        EXPECT_NEAR(losses[step][d], expected[step][d], 0.02F * std::abs(expected[step][d]));
    }
  }
}

}  // namespace
}  // namespace millrace::executor
