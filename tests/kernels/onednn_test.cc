// The adapter of oneDNN, compared with plain loops.
#include "kernels/cpu/onednn.h"

#include <vector>

#include <gtest/gtest.h>

namespace millrace::kernels::dnn {
namespace {

std::vector<float> numbers_onednn(size_t count, int start) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>((static_cast<int>(i) * 7 + start) % 11 - 5) / 4.0F;
  return values;
}

TEST(Onednn, ProductOfTransposedFactorsIsScaledAndAdded) {
  CpuDevice device(2);
  const std::vector<float> a = numbers_onednn(6, 0);   // [2, 3]
  const std::vector<float> b = numbers_onednn(12, 3);  // [4, 3], used as [3, 4]
  std::vector<float> c(8, 1.0F);
  Product spec{dense(DType::kFloat32, {2, 3}), dense(DType::kFloat32, {3, 4}),
               dense(DType::kFloat32, {2, 4})};
  spec.weights.strides = {1, 3};
  spec.alpha = 2.0F;
  spec.accumulate = true;
  auto made = product(device, spec);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const Status status =
      made->run(device, {{Arg::kSrc, a.data()}, {Arg::kWeights, b.data()}, {Arg::kDst, c.data()}});
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (size_t i = 0; i < 2; ++i) {
    for (size_t j = 0; j < 4; ++j) {
      float sum = 0;
      for (size_t k = 0; k < 3; ++k) sum += a[i * 3 + k] * b[j * 3 + k];
      EXPECT_FLOAT_EQ(c[i * 4 + j], 1.0F + 2.0F * sum);
    }
  }
}

// One image of two channels, one output channel, 3x3 kernel, padding only on the left and top.
TEST(Onednn, ConvolutionConvertsLayoutsAndPadsOneSide) {
  CpuDevice device;
  const std::vector<float> x = numbers_onednn(2 * 5 * 4, 1);
  const std::vector<float> w = numbers_onednn(2 * 3 * 3, 2);
  std::vector<float> y(4 * 3);
  Convolution spec{dense(DType::kFloat32, {1, 2, 5, 4}),
                   dense(DType::kFloat32, {1, 2, 3, 3}),
                   dense(DType::kFloat32, {1, 1, 4, 3}),
                   {1, 1},
                   {1, 1},
                   {1, 1},
                   {0, 0}};
  auto made = convolution(device, spec);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const Status status =
      made->run(device, {{Arg::kSrc, x.data()}, {Arg::kWeights, w.data()}, {Arg::kDst, y.data()}});
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 3; ++j) {
      float sum = 0;
      for (int c = 0; c < 2; ++c) {
        for (int k = 0; k < 9; ++k) {
          const int row = i + k / 3 - 1;
          const int column = j + k % 3 - 1;
          if (row < 0 || column < 0) continue;
          sum +=
              x[static_cast<size_t>(c * 20 + row * 4 + column)] * w[static_cast<size_t>(c * 9 + k)];
        }
      }
      EXPECT_NEAR(y[static_cast<size_t>(i * 3 + j)], sum, 1e-5F) << i << "," << j;
    }
  }
}

TEST(Onednn, AMissingArgumentIsAnError) {
  CpuDevice device;
  const std::vector<float> a(4);
  auto made = product(device, {dense(DType::kFloat32, {2, 2}), dense(DType::kFloat32, {2, 2}),
                               dense(DType::kFloat32, {2, 2})});
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->run(device, {{Arg::kSrc, a.data()}}).code(), StatusCode::kExecution);
}

TEST(Onednn, DimsThatDoNotFitAreRefusedWithWhatTheLibrarySays) {
  CpuDevice device;
  const auto made = product(device, {dense(DType::kFloat32, {2, 3}), dense(DType::kFloat32, {4, 2}),
                                     dense(DType::kFloat32, {2, 2})});
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("oneDNN cannot make a product"), std::string::npos);
}

TEST(Onednn, ShapeCacheKeepsWhatWasMadeAndDropsTheOldest) {
  ShapeCache<int> cache;
  int made = 0;
  const auto get = [&](int64_t key) {
    return **cache.get({key, 1}, [&]() -> StatusOr<int> { return ++made; });
  };
  EXPECT_EQ(get(7), 1);
  EXPECT_EQ(get(8), 2);
  EXPECT_EQ(get(7), 1);
  for (int64_t key = 100; key < 164; ++key) get(key);
  EXPECT_EQ(get(7), 67);
}

}  // namespace
}  // namespace millrace::kernels::dnn
