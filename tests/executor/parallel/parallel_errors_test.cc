#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/parallel/parallel_executor.h"
#include "executor/standard_runtime.h"
#include "tests/executor/parallel/small_job.h"

namespace millrace::executor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Status create_error(const ParallelOptions& options, const Program& program) {
  Scope scope;
  return ParallelExecutor::create(standard_runtime(), program, scope, options).status();
}

TEST(ParallelErrorsTest, RefusesUpdatesWithoutRoles) {
  const auto program = linear_regression();
  for (Op& op : program->root().ops()) op.remove_attr("op_role");
  EXPECT_TRUE(create_error(devices(1), *program).ok());
  const Status status = create_error(devices(2), *program);
  EXPECT_EQ(status.code(), StatusCode::kInvalidProgram);
  EXPECT_THAT(status.to_string(), AllOf(HasSubstr("sgd"), HasSubstr("has a role (op_role)")));
}

// Several threads would make the calls of one rank in any order.
TEST(ParallelErrorsTest, RefusesOpsBetweenProcessesOnSeveralDevices) {
  const auto program = linear_regression();
  Op& op = program->root().append_op("c_allreduce_sum");
  op.set_input("X", "w").set_output("Out", "w");
  EXPECT_TRUE(create_error(devices(1), *program).ok());
  const Status status = create_error(devices(2), *program);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.to_string(),
              AllOf(HasSubstr("(c_allreduce_sum)"),
                    HasSubstr("exchanges values between processes, which have one device each")));
}

TEST(ParallelErrorsTest, RefusesBadOptions) {
  const auto program = linear_regression();
  struct Case {
    void (*change)(ParallelOptions&);
    StatusCode code;
    const char* message;
  };
  const Case cases[] = {
      {[](ParallelOptions& o) { o.use_cuda = true; }, StatusCode::kUnimplemented, "use_cuda"},
      {[](ParallelOptions& o) { o.devices = 0; }, StatusCode::kInvalidArgument,
       "expected at least one device, found 0"},
      {[](ParallelOptions& o) { o.loss_name = ""; }, StatusCode::kInvalidArgument,
       "the program has backward or optimizer ops, but no loss_name is given"},
      {[](ParallelOptions& o) { o.loss_name = "lost"; }, StatusCode::kInvalidArgument,
       "loss_name: the program has no var 'lost'"},
      {[](ParallelOptions& o) { o.build_strategy.trainer_id = -1; }, StatusCode::kInvalidArgument,
       "trainer_id must be in [0, 1), found -1"},
      {[](ParallelOptions& o) { o.build_strategy.num_trainers = 2; }, StatusCode::kInvalidArgument,
       "no link to the other trainers"},
      {[](ParallelOptions& o) {
         o.build_strategy.trainers_endpoints = {"a:1", "b:1"};
       },
       StatusCode::kInvalidArgument, "num_trainers is 1, but there are 2 trainers_endpoints"},
      {[](ParallelOptions& o) { o.build_strategy.use_hierarchical_allreduce = true; },
       StatusCode::kInvalidArgument, "use_hierarchical_allreduce needs num_trainers above 1"},
      {[](ParallelOptions& o) {
         o.build_strategy.num_trainers = 4;
         o.build_strategy.use_hierarchical_allreduce = true;
         o.build_strategy.hierarchical_allreduce_inter_nranks = 3;
       },
       StatusCode::kInvalidArgument, "inter_nranks 3 does not divide num_trainers 4"},
      {[](ParallelOptions& o) { o.build_strategy.build_cinn_pass = true; },
       StatusCode::kUnimplemented, "build_strategy.build_cinn_pass"},
      {[](ParallelOptions& o) { o.build_strategy.allow_cuda_graph_capture = true; },
       StatusCode::kUnimplemented, "build_strategy.allow_cuda_graph_capture"},
      {[](ParallelOptions& o) { o.build_strategy.bkcl_comm_num = 2; }, StatusCode::kUnimplemented,
       "build_strategy.bkcl_comm_num"},
      {[](ParallelOptions& o) { o.build_strategy.sequential_run = true; },
       StatusCode::kUnimplemented, "build_strategy.sequential_run"},
      {[](ParallelOptions& o) { o.build_strategy.micro_batches = 0; }, StatusCode::kInvalidArgument,
       "micro_batches must be at least 1"},
      {[](ParallelOptions& o) { o.exec_strategy.num_threads = -2; }, StatusCode::kInvalidArgument,
       "exec_strategy.num_threads must not be negative, found -2"},
      {[](ParallelOptions& o) { o.exec_strategy.num_iteration_per_drop_scope = 0; },
       StatusCode::kInvalidArgument, "num_iteration_per_drop_scope must be at least 1"},
  };
  for (const Case& one : cases) {
    ParallelOptions options = devices(2);
    one.change(options);
    const Status status = create_error(options, *program);
    EXPECT_EQ(status.code(), one.code) << one.message;
    EXPECT_THAT(status.to_string(), HasSubstr(one.message));
  }
}

TEST(ParallelErrorsTest, RefusesProgramsItCannotRun) {
  EXPECT_THAT(create_error(devices(2), *Program::create()).to_string(),
              HasSubstr("the program has no ops"));
  auto program = linear_regression();
  program->root().append_op("dgc");
  const Status status = create_error(devices(2), *program);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.to_string(), HasSubstr("(dgc): gradient compression"));
  for (const char* const type :
       {"exchange_begin", "exchange_end", "shared_updates_end", "merge_gradient"}) {
    auto given = linear_regression();
    given->root().append_op(type);
    EXPECT_THAT(create_error(devices(2), *given).to_string(),
                HasSubstr("the given program must not have it"));
  }
}

TEST(ParallelErrorsTest, RefusesFeedsThatDoNotFit) {
  Job job(devices(4));
  std::vector<Value> results;
  Status status = job.executor->run(ParallelFeeds::split(batch(3, 0)), {}, results);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.to_string(),
              AllOf(HasSubstr("'t': feed: 3 rows cannot be split over 4"), HasSubstr("CPU_NUM")));
  const std::vector<int64_t> rows{1, 2, 3};
  const NamedValues eight = batch(8, 0);
  status = job.executor->run(ParallelFeeds::rows(eight, rows), {}, results);
  EXPECT_THAT(status.to_string(),
              HasSubstr("rows [1, 2, 3] for the devices do not split 8 rows into 4 parts"));
  std::vector<NamedValues> list(3);
  for (NamedValues& feed : list) feed = batch(2, 0);
  status = job.executor->run(ParallelFeeds::list(list), {}, results);
  EXPECT_THAT(status.to_string(), HasSubstr("one feed for each of 4 devices, found 3"));
  list.emplace_back();
  status = job.executor->run(ParallelFeeds::list(list), {}, results);
  EXPECT_THAT(status.to_string(), HasSubstr("the feed of device 3 is empty"));
  list.back() = batch(0, 0);
  status = job.executor->run(ParallelFeeds::list(list), {}, results);
  EXPECT_THAT(status.to_string(), HasSubstr("device 3 gets no rows"));
  status = job.executor->run(ParallelFeeds::split(eight), {"lost"}, results);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(job.train(1, 4).size(), 1U) << "it can run after all that";
}

TEST(ParallelErrorsTest, RunsAgainAfterAnOpHasFailedOnOneDevice) {
  for (const bool reduce : {false, true}) {
    ParallelOptions options = devices(3);
    if (reduce) options.build_strategy.reduce_strategy = ReduceStrategy::kReduce;
    Job job(options);
    job.train(2, 6);
    const auto before = floats(*job.scope.find_local("w"));
    std::vector<NamedValues> feeds(3);
    for (NamedValues& feed : feeds) feed = batch(2, 0);
    feeds[1]["x"] = tensor_value({2, 5}, std::vector<float>(10, 1));  // w has 3 rows
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::vector<Value> results;
      const Status status = job.executor->run(ParallelFeeds::list(feeds), {"loss"}, results);
      EXPECT_THAT(
          status.to_string(),
          AllOf(HasSubstr("block 0, op 1 (fc)"), HasSubstr("on device 1 in step"),
                HasSubstr("parameters are unchanged by the step"), Not(HasSubstr("cancelled"))));
      for (int d = 0; d < 3; ++d)
        EXPECT_EQ(floats(*job.executor->local_scope(d).find("w")), before);
    }
    EXPECT_EQ(job.train(2, 6).size(), 2U);
  }
}

TEST(ParallelErrorsTest, FeedsServeOneRun) {
  Job job(devices(2));
  job.train(1, 4);
  std::vector<Value> results;
  EXPECT_THAT(job.executor->run(ParallelFeeds::split({}), {}, results).to_string(),
              HasSubstr("'x': the input holds no value"));
  job.train(1, 4);
}

TEST(ParallelErrorsTest, RefusesToJoinWhatDoesNotFit) {
  ParallelOptions options;
  options.devices = 2;
  auto program = program_of(R"(# millrace
block 0 {
  var x: f32(-1, -1)
  var y: f32(-1, -1)
  scale X=x -> Out=y {scale: 2.0}
}
)");
  Job job(options, std::move(program));
  std::vector<NamedValues> feeds(2);
  feeds[0]["x"] = tensor_value({1, 2}, {1, 2});
  feeds[1]["x"] = tensor_value({1, 3}, {1, 2, 3});
  std::vector<Value> results;
  EXPECT_THAT(job.executor->run(ParallelFeeds::list(feeds), {"y"}, results).to_string(),
              AllOf(HasSubstr("'y': fetch: results of devices are f32 [1, 2] and f32 [1, 3]"),
                    HasSubstr("hint: fetch without merging")));
}

}  // namespace
}  // namespace millrace::executor
