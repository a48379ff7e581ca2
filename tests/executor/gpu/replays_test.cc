// Recorded work of a GPU, on the emulated device: it must compute what the ops compute one by one,
// and must not be used once a tensor has changed its place, dims or type.

#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "executor/gpu/gpu_ops.h"
#include "executor/standard_runtime.h"
#include "kernels/gpu/context.h"
#include "kernels/gpu/host_device.h"
#include "kernels/gpu/launch.h"
#include "kernels/gpu/resident.h"
#include "tests/executor/parallel/random_net.h"
#include "tests/executor/parallel/small_job.h"

namespace millrace::executor {
namespace {

using ::testing::HasSubstr;

// Linear regression on the processor, and on an emulated GPU if one is given.
class Trained {
 public:
  explicit Trained(bool on_gpu) {
    scope.local("w") = tensor_value({3, 1}, {1, 2, 3});
    scope.local("b") = tensor_value({1}, {0.5F});
    scope.local("lr") = tensor_value({1}, {0.1F});
    ExecutorOptions options{.optimize = false};
    if (on_gpu) options.gpu = std::make_shared<gpu::Context>(gpu::open_host_device({}));
    auto made = Executor(standard_runtime(), options).prepare(*linear_regression(), scope);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    prepared = *std::move(made);
  }
  float step(int64_t rows, int number) {
    std::vector<Value> results;
    const Status status = prepared->run(batch(rows, number), {"loss"}, results);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return status.ok() ? floats(results[0])[0] : -1.0F;
  }
  [[nodiscard]] int64_t recorded() const { return prepared->gpu()->replays().recorded_ops(); }

  Scope scope;
  std::unique_ptr<PreparedProgram> prepared;
};

TEST(Replays, SteadyStepsAreRecordedAndTrainAsBefore) {
  Trained there(true);
  Trained here(false);
  for (int step = 0; step < 8; ++step) {
    SCOPED_TRACE(step);
    EXPECT_NEAR(there.step(4, step), here.step(4, step), 1e-5);
    if (step < 2) {
      EXPECT_EQ(there.recorded(), 0);
    }
  }
  EXPECT_EQ(there.recorded(), there.prepared->gpu()->counts().on_gpu);
  EXPECT_GT(there.recorded(), 0);
}

TEST(Replays, OtherShapesAreNotReplayed) {
  Trained there(true);
  Trained here(false);
  const int64_t rows[] = {4, 4, 4, 4, 4, 6, 4, 4, 3, 3, 3, 3, 3, 3, 4};
  int step = 0;
  for (const int64_t count : rows) {
    SCOPED_TRACE(step);
    EXPECT_NEAR(there.step(count, step), here.step(count, step), 1e-5);
    if (step == 4) {
      EXPECT_GT(there.recorded(), 0);
    }
    if (step == 5) {
      EXPECT_EQ(there.recorded(), 0);
    }
    ++step;
  }
}

TEST(Replays, ParametersThatAreReplacedAreUsed) {
  Trained there(true);
  Trained here(false);
  for (int step = 0; step < 6; ++step) {
    (void)there.step(4, step);
    (void)here.step(4, step);
  }
  ASSERT_GT(there.recorded(), 0);
  for (Trained* const job : {&there, &here})
    job->scope.local("w") = tensor_value({3, 1}, {-1, 0.5F, 2});
  for (int step = 6; step < 12; ++step)
    EXPECT_NEAR(there.step(4, step), here.step(4, step), 1e-5) << step;
  EXPECT_GT(there.recorded(), 0);
}

// An op on the processor divides the ops that can be recorded.
TEST(Replays, OpsOnTheProcessorStayBetweenRecordings) {
  const auto program = program_of(R"(# millrace
block 0 {
    var x: f32(-1, 3)
    var a: f32(-1, 3)
    var b: f32(-1, 3)
    var c: f32(-1, 3)
    var d: f32(-1, 3)
    var e: f32(-1, 3)
    var y: f32(-1, 3)
    relu X=x -> Out=a
    square X=a -> Out=b
    cumprod X=b -> Out=c {dim: 1}
    sigmoid X=c -> Out=d
    square X=d -> Out=e
    tanh X=e -> Out=y
  })");
  const auto run = [&](std::shared_ptr<gpu::Context> gpu, int64_t& recorded) {
    Scope scope;
    auto prepared = Executor(standard_runtime(), {.optimize = false, .gpu = std::move(gpu)})
                        .prepare(*program, scope);
    EXPECT_TRUE(prepared.ok());
    std::vector<std::vector<float>> all;
    for (int step = 0; step < 6; ++step) {
      NamedValues feeds = batch(4, step);
      feeds.erase("t");
      std::vector<Value> results;
      const Status status = (*prepared)->run(feeds, {"y"}, results);
      EXPECT_TRUE(status.ok()) << status.to_string();
      all.push_back(floats(results[0]));
    }
    const GpuOps* const ops = (*prepared)->gpu();
    recorded = ops == nullptr ? 0 : ops->replays().recorded_ops();
    return all;
  };
  int64_t none = 0;
  int64_t recorded = 0;
  const auto want = run(nullptr, none);
  const auto got = run(std::make_shared<gpu::Context>(gpu::open_host_device({})), recorded);
  // relu and square; sigmoid copies the result of cumprod to the device; square and tanh
  EXPECT_EQ(recorded, 4);
  for (size_t step = 0; step < want.size(); ++step) {
    for (size_t i = 0; i < want[step].size(); ++i) EXPECT_NEAR(got[step][i], want[step][i], 1e-5);
  }
}

// Losses of steps of a program on a device, with the same seed.
std::vector<float> losses_of(const Program& program, const std::string& device,
                             const std::function<NamedValues(int)>& feeds) {
  Scope scope;
  scope.local("table") = tensor_value({4, 1}, {1, 2, 3, 4});
  ExecutorOptions options{.seed = 7, .optimize = false};
  if (device != "cpu") options.gpu = std::make_shared<gpu::Context>(gpu::open_host_device({}));
  const auto prepared = Executor(standard_runtime(), options).prepare(program, scope);
  EXPECT_TRUE(prepared.ok()) << prepared.status().to_string();
  std::vector<float> losses;
  for (int step = 0; step < 8; ++step) {
    std::vector<Value> results;
    const Status status = (*prepared)->run(feeds(step), {"loss"}, results);
    losses.push_back(status.ok() ? floats(results[0])[0] : -1.0F);
  }
  return losses;
}

// A seed is counted on the processor: recorded work would draw the same mask in every step.
TEST(Replays, EveryStepDropsOtherElements) {
  const auto program = program_of(R"(# millrace
block 0 {
    var x: f32(-1, 3)
    var a: f32(-1, 3)
    var b: f32(-1, 3)
    var mask: u8(-1, 3)
    var c: f32(-1, 3)
    var loss: f32(1)
    square X=x -> Out=a
    dropout X=a -> Out=b Mask=mask {dropout_prob: 0.5, is_test: false, dropout_implementation: "upscale_in_train"}
    square X=b -> Out=c
    mean X=c -> Out=loss
  })");
  const auto feeds = [](int /*step*/) {
    NamedValues all = batch(8, 3);
    all.erase("t");
    return all;
  };
  const std::vector<float> want = losses_of(*program, "cpu", feeds);
  const std::vector<float> got = losses_of(*program, "gpu", feeds);
  EXPECT_NE(want[6], want[7]);
  for (size_t step = 0; step < want.size(); ++step)
    EXPECT_NEAR(got[step], want[step], 1e-5) << step;
}

// Ids are checked on the processor, also in steps that could be recorded.
TEST(Replays, AnIdThatIsNoRowIsAnErrorInEveryStep) {
  const auto program = program_of(R"(# millrace
block 0 {
    persist table: f32(4, 1)
    var ids: i64(-1, 1)
    var rows: f32(-1, 1)
    var squares: f32(-1, 1)
    var loss: f32(1)
    lookup_table W=table Ids=ids -> Out=rows
    square X=rows -> Out=squares
    mean X=squares -> Out=loss
  })");
  const auto feeds = [](int step) {
    NamedValues all;
    auto& ids = all["ids"].as<Tensor>();
    EXPECT_TRUE(ids.resize(DType::kInt64, {2, 1}).ok());
    ids.data<int64_t>()[0] = step % 4;
    ids.data<int64_t>()[1] = step == 6 ? 4 : 1;
    return all;
  };
  const std::vector<float> want = losses_of(*program, "cpu", feeds);
  EXPECT_EQ(want[6], -1.0F);
  EXPECT_EQ(losses_of(*program, "gpu", feeds), want);
}

// As are labels.
TEST(Replays, ALabelThatIsNoClassIsAnErrorInEveryStep) {
  for (const char* const loss :
       {"softmax_with_cross_entropy Logits=x Label=label -> Softmax=p Loss=losses",
        "softmax X=x -> Out=p {axis: -1}\n    cross_entropy X=p Label=label -> Y=losses"}) {
    const auto program = program_of(fmt::format(R"(# millrace
block 0 {{
    var x: f32(-1, 3)
    var label: i64(-1, 1)
    var p: f32(-1, 3)
    var losses: f32(-1, 1)
    var loss: f32(1)
    {}
    mean X=losses -> Out=loss
  }})",
                                                loss));
    const auto feeds = [](int step) {
      NamedValues all = batch(2, step);
      all.erase("t");
      auto& label = all["label"].as<Tensor>();
      EXPECT_TRUE(label.resize(DType::kInt64, {2, 1}).ok());
      label.data<int64_t>()[0] = step % 3;
      label.data<int64_t>()[1] = step == 6 ? 3 : -100;
      return all;
    };
    const std::vector<float> want = losses_of(*program, "cpu", feeds);
    const std::vector<float> got = losses_of(*program, "gpu", feeds);
    EXPECT_EQ(want[6], -1.0F);
    for (size_t step = 0; step < want.size(); ++step)
      EXPECT_NEAR(got[step], want[step], 1e-5) << loss << step;
  }
}

TEST(Replays, TheDeviceExecutesRecordedWorkOnlyWhenItIsReplayed) {
  const auto device = gpu::open_host_device({});
  std::byte* const memory = *device->allocate(16);
  auto* const floats = reinterpret_cast<float*>(memory);
  const auto read = [&] {
    float value = 0;
    EXPECT_TRUE(device->copy_out(memory, reinterpret_cast<std::byte*>(&value), 4).ok());
    return value;
  };
  ASSERT_TRUE(gpu::each(*device, gpu::Fill{floats, 1}, 4).ok());
  ASSERT_TRUE(device->begin_recording().ok());
  ASSERT_TRUE(gpu::each(*device, gpu::Scale{floats, floats, 2, 0, true}, 4).ok());
  auto recording = device->end_recording();
  ASSERT_TRUE(recording.ok());
  EXPECT_EQ(read(), 1);
  ASSERT_TRUE((*recording)->replay().ok());
  ASSERT_TRUE((*recording)->replay().ok());
  EXPECT_EQ(read(), 4);
}

TEST(Replays, WhatCannotBeRecordedFailsTheRecording) {
  const auto device = gpu::open_host_device({});
  std::byte* const memory = *device->allocate(16);
  float value = 0;
  auto* const bytes = reinterpret_cast<std::byte*>(&value);
  const std::pair<const char*, std::function<Status()>> calls[] = {
      {"allocates", [&] { return device->allocate(4).status(); }},
      {"copies to", [&] { return device->copy_in(bytes, memory, 4); }},
      {"copies from", [&] { return device->copy_out(memory, bytes, 4); }},
      {"waits", [&] { return device->wait(); }}};
  for (const auto& [what, call] : calls) {
    ASSERT_TRUE(device->begin_recording().ok());
    EXPECT_EQ(call().code(), StatusCode::kInternal) << what;
    const auto recording = device->end_recording();
    EXPECT_EQ(recording.status().code(), StatusCode::kInternal) << what;
    EXPECT_THAT(recording.status().message(), HasSubstr(what));
    const Status later = what == std::string("allocates") ? Ok() : call();
    EXPECT_TRUE(later.ok()) << later.to_string();
  }
}

// Memory that is released while work is recorded must exist until the recording ends.
TEST(Replays, ReleasedMemoryIsFreedAfterTheRecording) {
  const auto device = gpu::open_host_device({.memory_limit = 16});
  std::byte* const memory = *device->allocate(16);
  ASSERT_TRUE(device->begin_recording().ok());
  device->release(memory);
  ASSERT_TRUE(device->end_recording().ok());
  EXPECT_TRUE(device->allocate(16).ok());
}

}  // namespace
}  // namespace millrace::executor
