// Functors of rows have the same results with a team of several threads as with one, also if they
// write to their input. Teams here are CPU threads that synchronize at barriers, like those of a
// GPU.

#include <barrier>
#include <cmath>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/gpu/functors/all.h"

namespace millrace::gpu {
namespace {

constexpr int kThreads = 4;

// Threads that compute sums through shared memory.
class ThreadTeam {
 public:
  struct Shared {
    std::barrier<> barrier{kThreads};
    double parts[kThreads] = {};
  };
  ThreadTeam(Shared& shared, int rank) : shared_(&shared), rank_(rank) {}
  [[nodiscard]] int64_t rank() const { return rank_; }
  [[nodiscard]] int64_t size() const { return kThreads; }
  [[nodiscard]] double sum(double x) const {
    share(x);
    double all = 0;
    for (const double part : shared_->parts) all += part;
    shared_->barrier.arrive_and_wait();
    return all;
  }
  float max(float x) const {
    share(static_cast<double>(x));
    double most = shared_->parts[0];
    for (const double part : shared_->parts) most = std::max(most, part);
    shared_->barrier.arrive_and_wait();
    return static_cast<float>(most);
  }

 private:
  void share(double x) const {
    shared_->parts[rank_] = x;
    shared_->barrier.arrive_and_wait();
  }
  Shared* shared_;
  int rank_;
};

struct OneThread {
  [[nodiscard]] static constexpr int64_t rank() { return 0; }
  [[nodiscard]] static constexpr int64_t size() { return 1; }
  static constexpr double sum(double x) { return x; }
  static constexpr float max(float x) { return x; }
};

template <typename Functor>
void run_alone(const Functor& functor, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) functor(OneThread(), row);
}

template <typename Functor>
void run_together(const Functor& functor, int64_t rows) {
  ThreadTeam::Shared shared;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kThreads; ++rank) {
    threads.emplace_back([&, rank] {
      for (int64_t row = 0; row < rows; ++row) functor(ThreadTeam(shared, rank), row);
    });
  }
}

std::vector<float> random_floats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-2, 2);
  std::vector<float> made(count);
  for (float& value : made) value = values(random);
  return made;
}

void expect_near_gpu_functors(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], 1e-5 * std::max(1.0F, std::abs(expected[i]))) << i;
}

// The functor of make(memory) writes to the given memory.
template <typename Make>
void expect_alike(const std::vector<float>& start, int64_t rows, const Make& make) {
  std::vector<float> alone = start;
  std::vector<float> together = start;
  run_alone(make(alone.data()), rows);
  run_together(make(together.data()), rows);
  expect_near_gpu_functors(together, alone);
}

constexpr int64_t kRows = 5;
constexpr int64_t kColumns = 37;
constexpr size_t kCount = kRows * kColumns;

TEST(GpuFunctors, SumsOfTheMiddle) {
  const std::vector<float> x = random_floats(3 * kRows * 7, 1);
  expect_alike(std::vector<float>(kRows), kRows,
               [&](float* y) { return SumMiddle{x.data(), y, 3, kRows, 7, 0.5F}; });
  std::vector<float> y(kRows);
  run_alone(SumMiddle{x.data(), y.data(), 3, kRows, 7, 0.5F}, kRows);
  double expected = 0;
  for (size_t a = 0; a < 3; ++a)
    for (size_t b = 0; b < 7; ++b) expected += static_cast<double>(x[(a * kRows + 2) * 7 + b]);
  EXPECT_NEAR(y[2], expected / 2, 1e-5);
}

TEST(GpuFunctors, SoftmaxInPlace) {
  const std::vector<float> x = random_floats(kCount, 2);
  expect_alike(x, kRows, [&](float* y) { return Softmax{y, y, kColumns, 1, false}; });
  std::vector<float> y = x;
  run_together(Softmax{y.data(), y.data(), kColumns, 1, false}, kRows);
  double sum = 0;
  for (int64_t c = 0; c < kColumns; ++c) sum += static_cast<double>(y[c]);
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_NEAR(y[3] / y[5], std::exp(x[3] - x[5]), 1e-5);
}

TEST(GpuFunctors, SoftmaxGradientInPlace) {
  const std::vector<float> y = random_floats(kCount, 3);
  expect_alike(random_floats(kCount, 4), kRows, [&](float* d) {
    return SoftmaxGradient{y.data(), d, d, kColumns, 1, false};
  });
}

TEST(GpuFunctors, EntropyOfLogitsInPlace) {
  const std::vector<int64_t> labels = {3, 0, 36, -100, 7};
  std::vector<float> loss(kRows);
  std::vector<float> loss_together(kRows);
  const std::vector<float> logits = random_floats(kCount, 5);
  const Labels given{labels.data(), kColumns, -100};
  std::vector<float> alone = logits;
  std::vector<float> together = logits;
  run_alone(SoftmaxEntropy{given, alone.data(), alone.data(), loss.data()}, kRows);
  run_together(SoftmaxEntropy{given, together.data(), together.data(), loss_together.data()},
               kRows);
  expect_near_gpu_functors(together, alone);
  expect_near_gpu_functors(loss_together, loss);
  EXPECT_NEAR(loss[0], -std::log(alone[3]), 1e-5);
  EXPECT_EQ(loss[3], 0.0F);
}

TEST(GpuFunctors, LabelsThatAreNoClassGiveNan) {
  const int64_t label = kColumns;
  std::vector<float> x = random_floats(kColumns, 6);
  float loss = 0;
  run_alone(SoftmaxEntropy{{&label, kColumns, -100}, x.data(), x.data(), &loss}, 1);
  EXPECT_TRUE(std::isnan(loss));
  run_alone(Entropy{{&label, kColumns, -100}, x.data(), &loss}, 1);
  EXPECT_TRUE(std::isnan(loss));
}

TEST(GpuFunctors, NormsInPlace) {
  const NormImages images{4, kRows, 9};
  const std::vector<float> scale = random_floats(kRows, 7);
  const std::vector<float> bias = random_floats(kRows, 8);
  const auto count = static_cast<size_t>(images.batch * images.channels * images.inner);
  const std::vector<float> mean(kRows, 0.5F);
  const std::vector<float> variance(kRows, 2.0F);
  std::vector<float> statistics(4 * kRows);
  const auto make = [&](float* x) {
    return NormTraining{images,
                        x,
                        x,
                        scale.data(),
                        bias.data(),
                        mean.data(),
                        variance.data(),
                        statistics.data(),
                        statistics.data() + kRows,
                        statistics.data() + 2 * kRows,
                        statistics.data() + 3 * kRows,
                        0.9F,
                        1e-5F,
                        true};
  };
  const std::vector<float> start = random_floats(count, 9);
  expect_alike(start, kRows, make);
  std::vector<float> x = start;
  run_alone(make(x.data()), kRows);
  const std::vector<float> alone = statistics;
  x = start;
  run_together(make(x.data()), kRows);
  expect_near_gpu_functors(statistics, alone);
  // gradients that overwrite the incoming ones
  expect_alike(random_floats(count, 10), kRows, [&](float* d) {
    return NormBackward{images,
                        start.data(),
                        d,
                        scale.data(),
                        alone.data() + 2 * kRows,
                        alone.data() + 3 * kRows,
                        d,
                        nullptr,
                        nullptr,
                        1e-5F,
                        false};
  });
}

TEST(GpuFunctors, GradientsOfFilters) {
  Convolution c;
  c.what = Convolution::What::kFilterGradient;
  c.batch = 2;
  c.in_channels = 4;
  c.out_channels = 6;
  c.groups = 2;
  for (int i = 0; i < 2; ++i) {
    c.in[i] = 7;
    c.out[i] = 4;
    c.kernel[i] = 3;
    c.stride[i] = 2;
    c.before[i] = 1;
  }
  std::vector<float> input = random_floats(static_cast<size_t>(c.input_count()), 11);
  std::vector<float> output = random_floats(static_cast<size_t>(c.output_count()), 12);
  c.input = input.data();
  c.output = output.data();
  expect_alike(std::vector<float>(static_cast<size_t>(c.filter_count())), c.filter_count(),
               [&](float* w) {
                 Convolution made = c;
                 made.filter = w;
                 return ConvolveFilterGradient{made};
               });
}

}  // namespace
}  // namespace millrace::gpu
