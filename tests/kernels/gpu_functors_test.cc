// Functors of rows have the same results with a team of several threads as with one, also if they
// write to their input. Teams here are CPU threads that synchronize at barriers, like those of a
// GPU.

#include <algorithm>
#include <barrier>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/gpu/functors/all.h"
#include "kernels/gpu/host_device.h"

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
  [[nodiscard]] double product(double x) const {
    share(x);
    double all = 1;
    for (const double part : shared_->parts) all *= part;
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
  static constexpr double product(double x) { return x; }
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
  expect_alike(random_floats(kCount, 4), kRows,
               [&](float* d) { return SoftmaxGradient{y.data(), d, d, kColumns, 1, false}; });
}

TEST(GpuFunctors, ProbabilitiesAreNeverZero) {
  const float x[] = {300, 0, -1e30F};
  float y[3];
  run_alone(Softmax{x, y, 3, 1, false}, 1);
  for (const int i : {1, 2}) EXPECT_NEAR(std::log(y[i]), -64, 1e-4) << i;
  run_alone(Softmax{x, y, 3, 1, true}, 1);
  for (const int i : {1, 2}) EXPECT_EQ(y[i], -64) << i;
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

  // so do the gradients of such a row, and of no other
  const int64_t labels[] = {kColumns, 0, -100, -1};
  const std::vector<float> p = random_floats(4 * kColumns, 7);
  const float d[] = {1, 1, 1, 1};
  std::vector<float> of_logits(p.size());
  std::vector<float> of_p(p.size());
  const Labels given{labels, kColumns, -100};
  for (size_t i = 0; i < p.size(); ++i) {
    SoftmaxEntropyGradient{given, p.data(), d, of_logits.data()}(static_cast<int64_t>(i));
    EntropyGradient{given, p.data(), d, of_p.data()}(static_cast<int64_t>(i));
    const bool bad = i < kColumns || i >= size_t{3} * kColumns;
    EXPECT_EQ(std::isnan(of_logits[i]), bad) << i;
    EXPECT_EQ(std::isnan(of_p[i]), bad) << i;
  }
}

struct NormCase {
  NormParts of{{4, kRows, 9}, 1};
  std::vector<float> scale = random_floats(kRows, 7);
  std::vector<float> bias = random_floats(kRows, 8);
  std::vector<float> mean = std::vector<float>(kRows, 0.5F);
  std::vector<float> variance = std::vector<float>(kRows, 2.0F);
  std::vector<float> statistics = std::vector<float>(4 * kRows);
  std::vector<double> sums = std::vector<double>(2 * kRows * 8);

  [[nodiscard]] size_t count() const {
    return static_cast<size_t>(of.images.channels * of.images.of_channel());
  }
  // The normalized images.
  template <typename Run>
  std::vector<float> forward(std::vector<float> x, const Run& run) {
    run(NormSums<>{of, x.data(), sums.data()}, of.rows());
    run(NormTraining<>{of, sums.data(), x.data(), x.data(), scale.data(), bias.data(), mean.data(),
                       variance.data(), statistics.data(), statistics.data() + kRows,
                       statistics.data() + 2 * kRows, statistics.data() + 3 * kRows, 0.9F, 1e-5F,
                       true, nullptr},
        of.rows());
    return x;
  }
  // The gradient of x, in the memory of the incoming one.
  template <typename Run>
  std::vector<float> backward(const std::vector<float>& x, std::vector<float> d, const Run& run) {
    const NormGradient<> g{of,
                           x.data(),
                           d.data(),
                           statistics.data() + 2 * kRows,
                           statistics.data() + 3 * kRows,
                           1e-5F,
                           false,
                           nullptr,
                           nullptr,
                           nullptr};
    run(NormBackwardSums<>{g, sums.data()}, of.rows());
    run(NormBackward<>{g, sums.data(), scale.data(), d.data(), nullptr, nullptr}, of.rows());
    return d;
  }
};

TEST(GpuFunctors, NormsInPlace) {
  const auto alone = [](const auto& functor, int64_t rows) { run_alone(functor, rows); };
  const auto together = [](const auto& functor, int64_t rows) { run_together(functor, rows); };
  NormCase whole;
  const std::vector<float> x = random_floats(whole.count(), 9);
  const std::vector<float> d = random_floats(whole.count(), 10);
  const std::vector<float> y = whole.forward(x, alone);
  const std::vector<float> dx = whole.backward(x, d, alone);
  // 36 elements of a channel, in parts that begin and end within images
  for (const int64_t parts : {1, 2, 5, 8}) {
    SCOPED_TRACE(parts);
    NormCase divided;
    divided.of.parts = parts;
    expect_near_gpu_functors(divided.forward(x, alone), y);
    expect_near_gpu_functors(divided.forward(x, together), y);
    expect_near_gpu_functors(divided.statistics, whole.statistics);
    expect_near_gpu_functors(divided.backward(x, d, alone), dx);
    expect_near_gpu_functors(divided.backward(x, d, together), dx);
  }
}

TEST(GpuFunctors, LayerNormsInPlace) {
  const std::vector<float> scale = random_floats(kColumns, 21);
  const std::vector<float> bias = random_floats(kColumns, 22);
  const std::vector<float> start = random_floats(kCount, 23);
  std::vector<float> mean(kRows);
  std::vector<float> variance(kRows);
  const auto norm = [&](float* x) {
    return LayerNorm{x,           scale.data(),    bias.data(), x,
                     mean.data(), variance.data(), kColumns,    1e-5F};
  };
  expect_alike(start, kRows, norm);
  // the gradient by the definition, with a loss of weights * results
  const std::vector<float> weights = random_floats(kCount, 24);
  expect_alike(weights, kRows, [&](float* d) {
    return LayerNormBackward{start.data(),    d, scale.data(), mean.data(),
                             variance.data(), d, kColumns,     1e-5F};
  });
  std::vector<float> d = weights;
  run_together(LayerNormBackward{start.data(), d.data(), scale.data(), mean.data(), variance.data(),
                                 d.data(), kColumns, 1e-5F},
               kRows);
  const auto loss = [&](float moved) {
    std::vector<float> x = start;
    x[3] += moved;
    run_alone(norm(x.data()), 1);
    double sum = 0;
    for (int64_t i = 0; i < kColumns; ++i)
      sum += static_cast<double>(x[i]) * static_cast<double>(weights[i]);
    return sum;
  };
  EXPECT_NEAR(d[3], (loss(0.01F) - loss(-0.01F)) / 0.02, 2e-3);
}

// Each kind of sum over rows that are side by side.
TEST(GpuFunctors, SumsOfColumns) {
  const std::vector<float> x = random_floats(kCount, 25);
  std::vector<float> mean(kRows, 0.5F);
  std::vector<float> variance(kRows, 1.0F);
  std::vector<float> bias(kColumns);
  expect_alike(std::vector<float>(kColumns), kColumns, [&](float* scale) {
    return LayerNormSums{x.data(), x.data(), mean.data(), variance.data(), scale, bias.data(),
                         kRows,    kColumns, 0.0F};
  });
  double expected = 0;
  for (int64_t r = 0; r < kRows; ++r) expected += static_cast<double>(x[r * kColumns + 2]);
  EXPECT_NEAR(bias[2], expected, 1e-5);
}

TEST(GpuFunctors, DividersDivide) {
  for (const int64_t by : {1, 2, 3, 7, 10, 64, 1000, 65537, 715827883, 2147483647}) {
    const Divider divider(by);
    for (const int64_t n : {0, 1, 2, 6, 63, 64, 999, 1000, 65536, 131074, 1431655766, 2147483647})
      EXPECT_EQ(divider.quotient(static_cast<uint32_t>(n)), n / by) << n << " / " << by;
  }
}

TEST(GpuFunctors, WalksFindTheElementsOfOtherOrders) {
  Walk<2> walk;  // [2, 3, 4] and its transposed form [4, 3, 2]; innermost first
  walk.rank = 3;
  walk.extents[0] = Divider(4);
  walk.extents[1] = Divider(3);
  walk.extents[2] = Divider(2);
  const int64_t strides[2][3] = {{1, 4, 12}, {6, 2, 1}};
  for (int k = 0; k < 2; ++k) std::copy(strides[k], strides[k] + 3, walk.strides[k]);
  for (int64_t i = 0; i < 24; ++i) {
    const auto at = walk.at(i);
    EXPECT_EQ(at.of[0], i);
    EXPECT_EQ(at.of[1], i % 4 * 6 + i / 4 % 3 * 2 + i / 12);
  }
}

TEST(GpuFunctors, PartsAreJoinedAndCut) {
  std::vector<uint32_t> a = {1, 2, 3, 4};  // two rows each
  std::vector<uint32_t> b = {5, 6};
  std::vector<uint32_t> whole(8, 99);
  Parts<uint32_t> parts;
  parts.count = 3;
  parts.whole_row = 4;
  parts.row = Divider(4);
  parts.parts[0] = a.data();
  parts.parts[1] = nullptr;  // left out
  parts.parts[2] = b.data();
  const uint32_t starts[] = {0, 2, 3, 4};
  std::copy(starts, starts + 4, parts.starts);
  for (int64_t i = 0; i < 8; ++i) Join<uint32_t>{parts, whole.data()}(i);
  EXPECT_EQ(whole, (std::vector<uint32_t>{1, 2, 0, 5, 3, 4, 0, 6}));
  a.assign(4, 0);
  b.assign(2, 0);
  for (int64_t i = 0; i < 8; ++i) gpu::Cut<uint32_t>{parts, whole.data()}(i);
  EXPECT_EQ(a, (std::vector<uint32_t>{1, 2, 3, 4}));
  EXPECT_EQ(b, (std::vector<uint32_t>{5, 6}));
}

TEST(GpuFunctors, ReductionsInParts) {
  const std::vector<float> x = random_floats(kCount, 26);
  std::vector<double> parts(4);
  Reduce<SumOf> first{x.data(), nullptr, parts.data(), {}, {}, 1, kCount, 50, 1.0F};
  first.kept.dense = true;
  first.gone.dense = true;
  run_together(first, 4);
  float sum = 0;
  run_together(ReduceParts<SumOf>{parts.data(), &sum, 1, 4, 0.5F}, 1);
  double expected = 0;
  for (const float value : x) expected += static_cast<double>(value);
  EXPECT_NEAR(sum, expected / 2, 1e-5);
  float most = 0;
  Reduce<SmallestOf> least{x.data(), &most,  nullptr, first.kept, first.gone,
                           1,        kCount, kCount,  1.0F};
  run_together(least, 1);
  EXPECT_EQ(most, *std::min_element(x.begin(), x.end()));
}

TEST(GpuFunctors, NanLastsInExtremes) {
  std::vector<float> x = random_floats(40, 27);
  x[9] = std::numeric_limits<float>::quiet_NaN();
  float most = 0;
  Reduce<LargestOf> largest{x.data(), &most, nullptr, {}, {}, 1, 40, 40, 1.0F};
  largest.kept.dense = true;
  largest.gone.dense = true;
  run_together(largest, 1);
  EXPECT_TRUE(std::isnan(most));
  run_alone(largest, 1);
  EXPECT_TRUE(std::isnan(most));
}

TEST(GpuFunctors, TotalsOfTeams) {
  std::vector<int64_t> whole;
  for (int64_t i = 0; i < 23; ++i) whole.push_back((i % 2 == 0 ? -1 : 1) * (i << 41) + i);
  int64_t found = 0;
  Total total{
      {whole.data(), ElementType::kI64}, &found, ElementType::kI64, {}, {}, 23, TotalRule::kSum, 0};
  total.kept.dense = true;
  total.gone.dense = true;
  run_together(total, 1);
  EXPECT_EQ(found, std::accumulate(whole.begin(), whole.end(), int64_t{0}));
  total.rule = TotalRule::kSmallest;
  run_together(total, 1);
  EXPECT_EQ(found, *std::min_element(whole.begin(), whole.end()));
  const std::vector<double> real = {0.5, -3.0e30, 7.25, 1e-9, 4.0};
  double most = 0;
  total = {{real.data(), ElementType::kF64},
           &most,
           ElementType::kF64,
           total.kept,
           total.gone,
           5,
           TotalRule::kSmallest,
           0};
  run_together(total, 1);
  EXPECT_EQ(most, -3.0e30);
}

TEST(GpuFunctors, ExtremesAndOrdersOfTeams) {
  const std::vector<float> x = {3, 1, 3, -2, 5, 5, -2, 0, 5};
  int64_t index = -1;
  run_together(FindExtreme{{x.data(), ElementType::kF32}, &index, true, true, 9, 1}, 1);
  EXPECT_EQ(index, 4);
  run_together(FindExtreme{{x.data(), ElementType::kF32}, &index, true, false, 9, 1}, 1);
  EXPECT_EQ(index, 3);
  std::vector<float> values(4);
  std::vector<int64_t> order(4);
  run_together(
      FindInOrder{{{x.data(), ElementType::kF32}, values.data(), order.data(), 9, 1, 0, 4, true}},
      1);
  EXPECT_EQ(values, (std::vector<float>{5, 5, 5, 3}));
  EXPECT_EQ(order, (std::vector<int64_t>{4, 5, 8, 0}));
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

// A convolution with windows of one pixel, and its gradient, as products of an emulated device.
TEST(GpuFunctors, ConvolutionsOfSinglePixelsAreProducts) {
  Convolution c;
  c.batch = 3;
  c.in_channels = 4;
  c.out_channels = 6;
  for (int i = 0; i < 2; ++i) c.in[i] = c.out[i] = 5 - i;
  c.kernel[0] = c.kernel[1] = 1;
  const auto device = open_host_device({});
  const auto upload = [&](const std::vector<float>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
    std::byte* const memory = *device->allocate(bytes);
    EXPECT_TRUE(
        device->copy_in(reinterpret_cast<const std::byte*>(values.data()), memory, bytes).ok());
    return reinterpret_cast<float*>(memory);
  };
  const auto download = [&](const void* from, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    EXPECT_TRUE(device
                    ->copy_out(static_cast<const std::byte*>(from),
                               reinterpret_cast<std::byte*>(values.data()), count * 4)
                    .ok());
    return values;
  };
  for (const auto what : {Convolution::What::kOutput, Convolution::What::kInputGradient}) {
    c.what = what;
    ASSERT_TRUE(c.is_product());
    c.input = upload(random_floats(static_cast<size_t>(c.input_count()), 21));
    c.filter = upload(random_floats(static_cast<size_t>(c.filter_count()), 22));
    c.output = upload(random_floats(static_cast<size_t>(c.output_count()), 23));
    const bool forward = what == Convolution::What::kOutput;
    const int64_t count = forward ? c.output_count() : c.input_count();
    ASSERT_TRUE(device->convolve(c).ok());
    const std::vector<float> convolved = download(forward ? c.output : c.input, count);
    ASSERT_TRUE(device->multiply(product_of(c)).ok());
    expect_near_gpu_functors(download(forward ? c.output : c.input, count), convolved);
  }
  c.what = Convolution::What::kFilterGradient;
  EXPECT_FALSE(c.is_product());
  c.what = Convolution::What::kOutput;
  c.stride[0] = 2;
  EXPECT_FALSE(c.is_product());
}

}  // namespace
}  // namespace millrace::gpu
