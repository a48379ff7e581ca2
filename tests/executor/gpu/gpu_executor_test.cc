// What an executor does with a GPU, on the emulated device: its memory cannot be touched by kernels
// of the processor, so a step that gets the wrong memory ends the test.

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "executor/feed_values.h"
#include "executor/gpu/gpu_steps.h"
#include "kernels/gpu/context.h"
#include "kernels/gpu/host_device.h"
#include "kernels/gpu/resident.h"
#include "tests/executor/parallel/random_net.h"
#include "tests/executor/parallel/small_job.h"

namespace millrace::executor {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<gpu::Context> emulated(int64_t memory_limit = 0) {
  return std::make_shared<gpu::Context>(gpu::open_host_device({.memory_limit = memory_limit}));
}

// A program in a scope with start values, on the GPU or on the processor.
struct GpuJob {
  GpuJob(const Program& program, std::shared_ptr<gpu::Context> gpu) {
    scope.local("w") = tensor_value({3, 1}, {1, 2, 3});
    scope.local("b") = tensor_value({1}, {0.5F});
    scope.local("lr") = tensor_value({1}, {0.1F});
    auto made = Executor(standard_runtime(), {.optimize = false, .gpu = std::move(gpu)})
                    .prepare(program, scope);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    prepared = *std::move(made);
  }
  std::vector<float> step(int number, const std::string& fetch = "loss") {
    std::vector<Value> results;
    const Status status = prepared->run(batch(4, number), {fetch}, results);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return status.ok() ? floats(results[0]) : std::vector<float>();
  }
  Scope scope;
  std::unique_ptr<PreparedProgram> prepared;
};

std::vector<float> content(const Scope& scope, const std::string& name) {
  Value copy;
  EXPECT_TRUE(copy_value(*scope.find(name), copy).ok());
  return floats(copy);
}

TEST(GpuExecutor, TrainsLikeTheProcessorAndKeepsParametersOnTheDevice) {
  const auto context = emulated();
  GpuJob there(*linear_regression(), context);
  GpuJob here(*linear_regression(), nullptr);
  for (int step = 0; step < 4; ++step) {
    const std::vector<float> expected = here.step(step);
    const std::vector<float> found = there.step(step);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5);
  }
  const Tensor& w = *there.scope.find("w")->get_if<Tensor>();
  ASSERT_NE(gpu::resident(w), nullptr);
  const std::vector<float> expected = content(here.scope, "w");
  const std::vector<float> found = content(there.scope, "w");
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5);
}

TEST(GpuExecutor, SteadyStepsCopyFeedsAndFetchesOnly) {
  const auto context = emulated();
  const auto program = program_of(R"(# millrace
block 0 {
    persist w: f32(3, 1)
    persist b: f32(1)
    var x: f32(-1, 3)
    var xw: f32(-1, 1)
    var y: f32(-1, 1)
    var loss: f32(1)
    mul X=x Y=w -> Out=xw
    elementwise_add X=xw Y=b -> Out=y
    mean X=y -> Out=loss
  })");
  GpuJob job(*program, context);
  for (int step = 0; step < 3; ++step) (void)job.step(step);
  const gpu::Traffic before = context->memory().traffic();
  const int64_t used = context->memory().bytes_in_use();
  (void)job.step(3);
  const gpu::Traffic& after = context->memory().traffic();
  EXPECT_EQ(after.copies_in - before.copies_in, 1);
  EXPECT_EQ(after.bytes_in - before.bytes_in, 4 * 3 * 4);
  EXPECT_EQ(after.copies_out - before.copies_out, 1);
  EXPECT_EQ(after.bytes_out - before.bytes_out, 4);
  EXPECT_EQ(context->memory().bytes_in_use(), used);
  EXPECT_THAT(job.prepared->plan_text(), HasSubstr("ops on the gpu: 3; on the cpu: 0"));
}

TEST(GpuExecutor, OpsWithoutKernelRunOnTheProcessorAndThePlanSaysSo) {
  const auto program = program_of(R"(# millrace
block 0 {
    persist w: f32(3, 1)
    var x: f32(-1, 3)
    var r: f32(-1, 3)
    var e: f32(-1, 3)
    var y: f32(-1, 1)
    relu X=x -> Out=r
    erf X=r -> Out=e
    mul X=e Y=w -> Out=y
  })");
  GpuJob there(*program, emulated());
  GpuJob here(*program, nullptr);
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> expected = here.step(step, "y");
    const std::vector<float> found = there.step(step, "y");
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5);
  }
  const std::string plan = there.prepared->plan_text();
  EXPECT_THAT(plan, HasSubstr("[cpu: there is no GPU kernel] [48 bytes from the gpu]"));
  EXPECT_THAT(plan, HasSubstr("[gpu] [48 bytes to the gpu]"));
  EXPECT_THAT(plan, HasSubstr("ops on the gpu: 2; on the cpu: 1"));
}

TEST(GpuExecutor, RefusedStepsGoOnOnTheProcessor) {
  // whole numbers: known only when the step runs
  const auto program = program_of(R"(# millrace
block 0 {
    var n: i64(-1, 2)
    var m: i64(-1, 2)
    var k: i64(-1, 2)
    elementwise_add X=n Y=n -> Out=m
    elementwise_add X=m Y=m -> Out=m
    scale X=m -> Out=k {scale: 3.0}
  })");
  Scope scope;
  auto prepared = Executor(standard_runtime(), {.gpu = emulated()}).prepare(*program, scope);
  ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
  NamedValues feeds;
  Tensor& n = feeds["n"].as<Tensor>();
  ASSERT_TRUE(n.resize(DType::kInt64, {1, 2}).ok());
  n.data<int64_t>()[0] = 1;
  n.data<int64_t>()[1] = -2;
  std::vector<Value> results;
  for (int step = 0; step < 3; ++step) {
    const Status status = (*prepared)->run(feeds, {"k"}, results);
    ASSERT_TRUE(status.ok()) << status.to_string();
    const auto* const k = results[0].get_if<Tensor>()->data<int64_t>();
    EXPECT_EQ(k[0], 12);
    EXPECT_EQ(k[1], -24);
  }
  EXPECT_THAT((*prepared)->plan_text(),
              HasSubstr("[cpu: the GPU kernel is for f32, found i64 [1, 2]]"));
}

TEST(GpuExecutor, FullMemoryIsAnErrorThatNamesOpSizesAndHolders) {
  const auto program = program_of(R"(# millrace
block 0 {
    persist w: f32(3, 1)
    var x: f32(-1, 3)
    var y: f32(-1, 1)
    mul X=x Y=w -> Out=y
  })");
  GpuJob job(*program, emulated(50));  // x takes 48 bytes
  std::vector<Value> results;
  const Status status = job.prepared->run(batch(4, 0), {"y"}, results);
  EXPECT_EQ(status.code(), StatusCode::kResource);
  EXPECT_THAT(status.to_string(),
              HasSubstr("no device memory for 'w': 12 bytes wanted, 48 in use"));
  EXPECT_THAT(status.to_string(), HasSubstr("most is held by 'x' (48 bytes)"));
  EXPECT_THAT(status.to_string(), HasSubstr("op 0 (mul)"));
}

// The scope may be used by an executor without a GPU afterwards.
TEST(GpuExecutor, OtherExecutorsReadWhatStaysOnTheDevice) {
  const auto program = linear_regression();
  GpuJob job(*program, emulated());
  (void)job.step(0);
  job.prepared.reset();
  auto other = Executor(standard_runtime(), {.optimize = false}).prepare(*program, job.scope);
  ASSERT_TRUE(other.ok());
  std::vector<Value> results;
  GpuJob reference(*program, nullptr);
  (void)reference.step(0);
  ASSERT_TRUE((*other)->run(batch(4, 1), {"loss"}, results).ok());
  EXPECT_NEAR(floats(results[0])[0], reference.step(1)[0], 1e-5);
}

// Everything the frontend can build: ops with and without GPU kernels, sub-blocks, sparse rows.
class GpuRandomNets : public ::testing::TestWithParam<uint32_t> {};

TEST_P(GpuRandomNets, TrainAlike) {
  const RandomNet net(GetParam());
  const RandomNet::Run start = net.start(devices(1));
  Scope scopes[2];
  std::unique_ptr<PreparedProgram> prepared[2];
  for (int side = 0; side < 2; ++side) {
    for (const std::string& name : start.scope->names()) {
      const Value& value = *start.scope->find_local(name);
      if (value.initialized()) {
        ASSERT_TRUE(copy_value(value, scopes[side].local(name)).ok());
      }
    }
    auto made =
        Executor(standard_runtime(), {.optimize = false, .gpu = side == 0 ? nullptr : emulated()})
            .prepare(net.main(), scopes[side]);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    prepared[side] = *std::move(made);
  }
  for (int step = 0; step < 3; ++step) {
    std::vector<float> losses[2];
    for (int side = 0; side < 2; ++side) {
      std::vector<Value> results;
      const Status status = prepared[side]->run(net.feeds(12, step), {net.loss()}, results);
      ASSERT_TRUE(status.ok()) << net.describe() << "\n" << status.to_string();
      losses[side] = floats(results[0]);
    }
    ASSERT_EQ(losses[0].size(), losses[1].size());
    for (size_t i = 0; i < losses[0].size(); ++i) {
      EXPECT_NEAR(losses[1][i], losses[0][i], 2e-4F * std::max(1.0F, std::abs(losses[0][i])))
          << net.describe() << " step " << step;
    }
  }
  EXPECT_GT(prepared[1]->gpu()->counts().on_gpu, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, GpuRandomNets, ::testing::Range(1U, 13U));

}  // namespace
}  // namespace millrace::executor
