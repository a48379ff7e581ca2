// Programs of mixed precision on the emulated device: no op runs on the processor, and the results
// are those of the processor within the precision of 16-bit floats.

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/executor.h"
#include "executor/feed_values.h"
#include "executor/gpu/gpu_ops.h"
#include "executor/standard_runtime.h"
#include "frontend/layers.h"
#include "frontend/network.h"
#include "kernels/gpu/context.h"
#include "kernels/gpu/host_device.h"
#include "tests/executor/parallel/small_job.h"

namespace millrace::executor {
namespace {

constexpr int64_t kMixedRows = 4;
constexpr int64_t kMixedSide = 8;
constexpr int64_t kMixedWords = 6;
constexpr int64_t kMixedWidth = 8;
constexpr int64_t kMixedVocabulary = 12;

// Numbers in [-1, 1].
std::vector<float> mixed_noise(int64_t count, uint32_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    values.push_back(static_cast<float>(seed >> 8U) * 0x1p-23F - 1.0F);
  }
  return values;
}
Value ids_value(const std::vector<int64_t>& dims, int64_t below, uint32_t seed) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  Value value;
  auto& tensor = value.as<Tensor>();
  EXPECT_TRUE(tensor.resize(DType::kInt64, dims).ok());
  const std::vector<float> noise = mixed_noise(count, seed);
  for (int64_t i = 0; i < count; ++i)
    tensor.data<int64_t>()[i] = static_cast<int64_t>((noise[static_cast<size_t>(i)] + 1) * 0.499F *
                                                     static_cast<float>(below));
  return value;
}

// A net whose middle is 16 bits wide.
struct MixedNet {
  Network net;
  std::string loss;
  NamedValues feeds;

  void train(const VarRef& logits, const VarRef& label, const MinimizeOptions& options) {
    const VarRef wide = layers::cast(logits, DType::kFloat32);
    const VarRef mean = layers::mean(layers::softmax_with_cross_entropy(wide, label));
    loss = mean.name();
    const auto made = net.minimize(mean, options);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
  }
};

MixedNet images(DType half) {
  MixedNet made;
  const VarRef image = made.net.data("image", {-1, 3, kMixedSide, kMixedSide});
  const VarRef label = made.net.data("label", {-1, 1}, DType::kInt64);
  VarRef h = layers::conv2d(layers::cast(image, half), 8, {3, 3}, {.padding = {1, 1}});
  h = layers::batch_norm(h, {.act = "relu"});
  const VarRef before = h;
  h = layers::conv2d(h, 8, {3, 3}, {.padding = {1, 1}, .groups = 8, .act = "relu"});
  h = layers::conv2d(h, 8, {1, 1});
  h = layers::relu(layers::elementwise_add(h, before));
  h = layers::pool2d(h, {2, 2}, {.type = "max", .stride = {2, 2}});
  h = layers::pool2d(h, {4, 4}, {.type = "avg"});
  made.train(layers::fc(h, 3), label,
             {.method = Momentum{.multi_precision = true}, .learning_rate = 0.05});
  made.feeds.emplace("image",
                     tensor_value({kMixedRows, 3, kMixedSide, kMixedSide},
                                  mixed_noise(kMixedRows * 3 * kMixedSide * kMixedSide, 1)));
  made.feeds.emplace("label", ids_value({kMixedRows, 1}, 3, 2));
  return made;
}

MixedNet attention(DType half) {
  MixedNet made;
  const VarRef words = made.net.data("words", {-1, kMixedWords, 1}, DType::kInt64);
  const VarRef label = made.net.data("label", {-1, kMixedWords, 1}, DType::kInt64);
  const VarRef h = layers::cast(layers::embedding(words, kMixedVocabulary, kMixedWidth), half);
  const auto project = [](const VarRef& x, int64_t width) {
    return layers::fc(x, width, {.num_flatten_dims = 2});
  };
  VarRef scores =
      layers::matmul(project(h, kMixedWidth), project(h, kMixedWidth), {.transpose_y = true});
  scores = layers::dropout(layers::softmax(layers::scale(scores, 0.35)), 0.2, {.seed = 5});
  VarRef mixed = layers::elementwise_add(h, layers::matmul(scores, project(h, kMixedWidth)));
  mixed = layers::layer_norm(mixed, {.begin_norm_axis = 2});
  mixed = layers::elementwise_add(mixed, project(layers::gelu(project(mixed, 12)), kMixedWidth));
  mixed = layers::transpose(layers::transpose(mixed, {0, 2, 1}), {0, 2, 1});
  made.train(project(mixed, kMixedVocabulary), label, {.method = Adam{}, .learning_rate = 0.01});
  made.feeds.emplace("words", ids_value({kMixedRows, kMixedWords, 1}, kMixedVocabulary, 3));
  made.feeds.emplace("label", ids_value({kMixedRows, kMixedWords, 1}, kMixedVocabulary, 4));
  return made;
}

// Losses of some steps on the processor, or on the emulated device.
std::vector<float> losses(const MixedNet& made, bool on_gpu, Scope& scope) {
  Executor start(standard_runtime(), {});
  auto startup = start.prepare(made.net.startup(), scope);
  EXPECT_TRUE(startup.ok()) << startup.status().to_string();
  std::vector<Value> results;
  EXPECT_TRUE((*startup)->run({}, {}, results).ok());
  ExecutorOptions options;
  options.optimize = false;
  if (on_gpu) options.gpu = std::make_shared<gpu::Context>(gpu::open_host_device({}));
  auto prepared = Executor(standard_runtime(), options).prepare(made.net.main(), scope);
  EXPECT_TRUE(prepared.ok()) << prepared.status().to_string();
  std::vector<float> all;
  for (int step = 0; step < 5; ++step) {
    NamedValues feeds;
    for (const auto& [name, value] : made.feeds) {
      EXPECT_TRUE(copy_value(value, feeds[name]).ok());
    }
    const Status status = (*prepared)->run(std::move(feeds), {made.loss}, results);
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!status.ok()) return all;
    all.push_back(floats(results[0]).at(0));
  }
  if (on_gpu) {
    EXPECT_EQ((*prepared)->gpu()->counts().on_cpu, 0) << (*prepared)->plan_text();
  }
  return all;
}

void expect_alike(const MixedNet& made, DType half) {
  Scope here;
  Scope there;
  const std::vector<float> expected = losses(made, false, here);
  const std::vector<float> found = losses(made, true, there);
  ASSERT_EQ(found.size(), expected.size());
  const float tolerance = half == DType::kFloat16 ? 4e-3F : 3e-2F;
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], tolerance * std::max(1.0F, expected[i])) << i;
  EXPECT_LT(expected.back(), expected.front());
}

class MixedPrecision : public ::testing::TestWithParam<DType> {};

TEST_P(MixedPrecision, ImagesTrainOnTheDeviceAlone) {
  expect_alike(images(GetParam()), GetParam());
}
TEST_P(MixedPrecision, AttentionTrainsOnTheDeviceAlone) {
  expect_alike(attention(GetParam()), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Types, MixedPrecision,
                         ::testing::Values(DType::kFloat16, DType::kBfloat16));

// One step in which a gradient may be infinite: the vars are fetched after it.
std::unique_ptr<Program> loss_scaling() {
  return program_of(R"(# millrace
block 0 {
    persist scale: f32(1)
    persist good: i32(1)
    persist bad: i32(1)
    persist w: f16(3)
    persist master: f32(3)
    persist velocity: f32(3)
    persist lr: f32(1)
    var g: f32(3)
    var h: f16(3)
    var found: bool(1)
    cast X=g -> Out=h {in_dtype: 5, out_dtype: 4}
    check_finite_and_unscale X=h,g Scale=scale -> Out=h,g FoundInfinite=found
    update_loss_scaling X=h,g FoundInfinite=found PrevLossScaling=scale InGoodSteps=good InBadSteps=bad -> Out=h,g LossScaling=scale OutGoodSteps=good OutBadSteps=bad {incr_every_n_steps: 2, decr_every_n_nan_or_inf: 1, incr_ratio: 2.0, decr_ratio: 0.5}
    momentum Param=w Grad=h Velocity=velocity LearningRate=lr MasterParam=master -> ParamOut=w VelocityOut=velocity MasterParamOut=master {mu: 0.9, multi_precision: true}
  })");
}

TEST(LossScaling, FollowsTheGradientsWithoutWaiting) {
  const auto program = loss_scaling();
  const auto context = std::make_shared<gpu::Context>(gpu::open_host_device({}));
  Scope scopes[2];
  std::unique_ptr<PreparedProgram> prepared[2];
  for (int side = 0; side < 2; ++side) {
    Scope& scope = scopes[side];
    scope.local("scale") = tensor_value({1}, {64});
    for (const char* const name : {"good", "bad"}) {
      auto& count = scope.local(name).as<Tensor>();
      ASSERT_TRUE(count.resize(DType::kInt32, {1}).ok());
      *count.data<int32_t>() = 0;
    }
    auto& w = scope.local("w").as<Tensor>();
    ASSERT_TRUE(w.resize(DType::kFloat16, {3}).ok());
    for (int i = 0; i < 3; ++i) w.data<Float16>()[i] = Float16(static_cast<float>(i));
    scope.local("master") = tensor_value({3}, {0, 1, 2});
    scope.local("velocity") = tensor_value({3}, {0, 0, 0});
    scope.local("lr") = tensor_value({1}, {0.01F});
    auto made =
        Executor(standard_runtime(), {.optimize = false, .gpu = side == 0 ? nullptr : context})
            .prepare(*program, scope);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    prepared[side] = *std::move(made);
  }
  const float infinite = std::numeric_limits<float>::infinity();
  for (const float number : {3.0F, 5.0F, infinite, 7.0F, std::nanf(""), infinite, 2.0F, 70000.0F}) {
    std::vector<float> after[2];
    for (int side = 0; side < 2; ++side) {
      NamedValues feeds;
      feeds.emplace("g", tensor_value({3}, {number, 1.5F, -2}));
      std::vector<Value> results;
      const Status status =
          prepared[side]->run(std::move(feeds), {"scale", "master", "velocity", "g"}, results);
      ASSERT_TRUE(status.ok()) << status.to_string();
      for (const Value& value : results) {
        for (const float x : floats(value)) after[side].push_back(x);
      }
      for (const char* const name : {"good", "bad", "w"}) {
        Tensor plain;
        ASSERT_TRUE(copy_plain(*scopes[side].find(name)->get_if<Tensor>(), plain).ok());
        for (int64_t i = 0; i < plain.numel(); ++i)
          after[side].push_back(plain.dtype() == DType::kInt32
                                    ? static_cast<float>(plain.data<int32_t>()[i])
                                    : static_cast<float>(plain.data<Float16>()[i]));
      }
    }
    EXPECT_THAT(after[1], ::testing::Pointwise(::testing::NanSensitiveFloatEq(), after[0]))
        << number;
  }
  EXPECT_EQ(prepared[1]->gpu()->counts().on_cpu, 0) << prepared[1]->plan_text();
}

}  // namespace
}  // namespace millrace::executor
