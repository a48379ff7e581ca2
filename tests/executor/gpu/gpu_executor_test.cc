// What an executor does with a GPU, on the emulated device. CPU kernels cannot access the memory of
// that device, so a step that gets the wrong memory crashes the test.

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "executor/feed_values.h"
#include "executor/gpu/gpu_ops.h"
#include "executor/standard_runtime.h"
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

// A program in a scope with initial values, on the GPU or on the CPU.
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
    cumprod X=r -> Out=e {dim: 1}
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
  // elements of a type that is known only at run time
  const auto program = program_of(R"(# millrace
block 0 {
    var n: i16(-1, 2)
    var m: i16(-1, 2)
    var k: i16(-1, 2)
    elementwise_add X=n Y=n -> Out=m
    elementwise_add X=m Y=m -> Out=m
    scale X=m -> Out=k {scale: 3.0}
  })");
  Scope scope;
  auto prepared = Executor(standard_runtime(), {.gpu = emulated()}).prepare(*program, scope);
  ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
  NamedValues feeds;
  Tensor& n = feeds["n"].as<Tensor>();
  ASSERT_TRUE(n.resize(DType::kInt16, {1, 2}).ok());
  n.data<int16_t>()[0] = 1;
  n.data<int16_t>()[1] = -2;
  std::vector<Value> results;
  for (int step = 0; step < 3; ++step) {
    const Status status = (*prepared)->run(feeds, {"k"}, results);
    ASSERT_TRUE(status.ok()) << status.to_string();
    const auto* const k = results[0].get_if<Tensor>()->data<int16_t>();
    EXPECT_EQ(k[0], 12);
    EXPECT_EQ(k[1], -24);
  }
  EXPECT_THAT((*prepared)->plan_text(),
              HasSubstr("[cpu: the GPU kernel is for f32, found i16 [1, 2]]"));
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

// A table with two gradients, which are added.
std::unique_ptr<Program> sparse_net(const std::string& update) {
  return program_of(R"(# millrace
block 0 {
    persist w: f32(6, 2)
    persist v: f32(6, 2)
    persist lr: f32(1)
    var ids: i64(-1, 1)
    var a: f32(-1, 2)
    var c: f32(-1, 2)
    var ga: selected_rows f32(6, 2)
    var gb: selected_rows f32(6, 2)
    var g: selected_rows f32(6, 2)
    var other: selected_rows f32(6, 2)
    lookup_table_v2 W=w Ids=ids -> Out=a
    tanh X=a -> Out=c
    lookup_table_v2_grad W=w Ids=ids Out@GRAD=c -> W@GRAD=ga {is_sparse: true}
    lookup_table_v2_grad W=w Ids=ids Out@GRAD=a -> W@GRAD=gb {is_sparse: true}
    sum X=ga, gb -> Out=g
    )" + update + "\n  }");
}

// Teams of other sizes sum in another order, and some of these nets diverge: 1e-5 of each value.
void expect_close(const std::vector<float>& found, const std::vector<float>& expected,
                  const char* what) {
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-5F * std::max(1.0F, std::abs(expected[i]))) << what;
}

// Steps of such a net on one side; returns the table, and says what the last step copied.
struct SparseRun {
  std::vector<float> table;
  std::vector<float> rows;  ///< values of the gradient, as fetched
  int64_t copies_out = 0;   ///< from the device in the last step
  std::string plan;
};
SparseRun run_sparse(const Program& program, const std::shared_ptr<gpu::Context>& context) {
  Scope scope;
  scope.local("w") = tensor_value({6, 2}, {1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, -6});
  scope.local("v") = tensor_value({6, 2}, std::vector<float>(12, 0.25F));
  scope.local("lr") = tensor_value({1}, {0.1F});
  SparseRun run;
  auto prepared =
      Executor(standard_runtime(), {.optimize = false, .gpu = context}).prepare(program, scope);
  EXPECT_TRUE(prepared.ok()) << prepared.status().to_string();
  if (!prepared.ok()) return run;
  std::vector<Value> results;
  for (int step = 0; step < 3; ++step) {
    NamedValues feeds;
    Tensor& ids = feeds["ids"].as<Tensor>();
    EXPECT_TRUE(ids.resize(DType::kInt64, {4, 1}).ok());
    const int64_t rows[] = {4, step, 4, 1};  // with repetitions
    std::copy(rows, rows + 4, ids.data<int64_t>());
    const int64_t before = context == nullptr ? 0 : context->memory().traffic().copies_out;
    const std::vector<std::string> fetches =
        step < 2 ? std::vector<std::string>{} : std::vector<std::string>{"g"};
    const Status status = (*prepared)->run(feeds, fetches, results);
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!status.ok()) return run;
    if (context != nullptr) run.copies_out = context->memory().traffic().copies_out - before;
  }
  const auto& fetched = *results[0].get_if<SelectedRows>();
  EXPECT_EQ(fetched.rows, (std::vector<int64_t>{4, 2, 1}));
  run.rows.assign(fetched.value.data<float>(), fetched.value.data<float>() + fetched.value.numel());
  run.table = content(scope, "w");
  run.plan = (*prepared)->plan_text();
  return run;
}

TEST(GpuExecutor, SparseGradientsStayOnTheDevice) {
  for (const char* const update :
       {"sgd Param=w Grad=g LearningRate=lr -> ParamOut=w",
        "adagrad Param=w Grad=g Moment=v LearningRate=lr -> ParamOut=w MomentOut=v",
        "momentum Param=w Grad=g Velocity=v LearningRate=lr -> ParamOut=w VelocityOut=v {mu: "
        "0.9}"}) {
    const auto program = sparse_net(update);
    const SparseRun here = run_sparse(*program, nullptr);
    const SparseRun there = run_sparse(*program, emulated());
    ASSERT_EQ(there.table.size(), 12U) << update;
    expect_close(there.table, here.table, update);
    ASSERT_EQ(there.rows.size(), 6U);
    expect_close(there.rows, here.rows, update);
    EXPECT_THAT(there.plan, HasSubstr("on the cpu: 0")) << update;
    // the fetched gradient only: the numbers of its rows never come back from the device
    EXPECT_EQ(there.copies_out, 1) << update;
  }
}

// An op of the processor that reads rows whose values are on the device.
TEST(GpuExecutor, OpsOfTheProcessorGetRowsFromTheDevice) {
  const auto program = sparse_net(
      "fill_any_like X=g -> Out=other\n"
      "    sgd Param=w Grad=g LearningRate=lr -> ParamOut=w");
  const SparseRun here = run_sparse(*program, nullptr);
  const SparseRun there = run_sparse(*program, emulated());
  ASSERT_EQ(there.table.size(), 12U);
  expect_close(there.table, here.table, "reading rows");
  EXPECT_THAT(there.plan, HasSubstr("on the cpu: 1"));
}

// By the kernel of the processor.
TEST(GpuExecutor, WrongIdsAreReported) {
  const auto program = program_of(R"(# millrace
block 0 {
    persist w: f32(3, 1)
    var ids: i64(-1, 1)
    var a: f32(-1, 1)
    lookup_table_v2 W=w Ids=ids -> Out=a
  })");
  GpuJob job(*program, emulated());
  NamedValues feeds;
  Tensor& ids = feeds["ids"].as<Tensor>();
  ASSERT_TRUE(ids.resize(DType::kInt64, {1, 1}).ok());
  ids.data<int64_t>()[0] = 3;
  std::vector<Value> results;
  const Status status = job.prepared->run(feeds, {"a"}, results);
  EXPECT_THAT(status.to_string(), HasSubstr("Ids has 3 at 0, expected a number in [0, 3)"));
}

// The copy in process memory of a number that the device changes in place is not read any more.
TEST(GpuExecutor, CopiesOfWholeNumbersAreForgotten) {
  const auto program = program_of(R"(# millrace
block 0 {
    var n: i64(-1, 2)
    elementwise_add X=n Y=n -> Out=n
    elementwise_add X=n Y=n -> Out=n
  })");
  Scope scope;
  auto prepared = Executor(standard_runtime(), {.gpu = emulated()}).prepare(*program, scope);
  ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
  NamedValues feeds;
  Tensor& n = feeds["n"].as<Tensor>();
  ASSERT_TRUE(n.resize(DType::kInt64, {1, 2}).ok());
  n.data<int64_t>()[0] = 3;
  n.data<int64_t>()[1] = -1;
  std::vector<Value> results;
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE((*prepared)->run(feeds, {"n"}, results).ok());
    EXPECT_EQ(results[0].get_if<Tensor>()->data<int64_t>()[0], 12);
    EXPECT_EQ(results[0].get_if<Tensor>()->data<int64_t>()[1], -4);
  }
  EXPECT_THAT((*prepared)->plan_text(), HasSubstr("on the cpu: 0"));
}

// A seed drops the same elements on the device as on the processor.
TEST(GpuExecutor, DropoutDropsTheSameElements) {
  const auto program = program_of(R"(# millrace
block 0 {
    persist w: f32(3, 1)
    var x: f32(-1, 3)
    var y: f32(-1, 3)
    var m: u8(-1, 3)
    dropout X=x -> Out=y Mask=m {dropout_prob: 0.5, dropout_implementation: "upscale_in_train"}
  })");
  GpuJob there(*program, emulated());
  GpuJob here(*program, nullptr);
  for (int step = 0; step < 3; ++step) EXPECT_EQ(there.step(step, "y"), here.step(step, "y"));
  EXPECT_THAT(there.prepared->plan_text(), HasSubstr("on the cpu: 0"));
}

// All nets that the frontend can build: ops with and without GPU kernels, sub-blocks, sparse rows.
class GpuRandomNets : public ::testing::TestWithParam<uint32_t> {};

TEST(GpuExecutor, OptionsOfTheProcessorAreRefused) {
  const auto refusal = [](ExecutorOptions options) {
    Scope scope;
    options.gpu = emulated();
    return Executor(standard_runtime(), options).prepare(*linear_inference(), scope).status();
  };
  EXPECT_THAT(refusal({.inter_op = true}).message(), HasSubstr("inter_op with a GPU"));
  EXPECT_THAT(refusal({.release_folded = true}).message(), HasSubstr("release_folded with a GPU"));
  EXPECT_THAT(refusal({.debug_memory = true}).message(), HasSubstr("debug_memory with a GPU"));
  EXPECT_TRUE(refusal({}).ok());
}

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
