// Convolutions that may use Winograd's method, compared with plain loops in double.
#include "kernels/cpu/nn/winograd.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "kernels/cpu/nn/conv_pass.h"

namespace millrace::kernels {
namespace {

struct Shape {
  int64_t images, in, size, out;
};
void PrintTo(const Shape& s, std::ostream* to) {
  *to << s.images << " images, " << s.in << " channels of " << s.size << " to " << s.out;
}

// A tensor, and the same numbers in double.
struct Twin {
  Tensor narrow, wide;

  Twin(const Dims& dims, uint32_t seed) {
    EXPECT_TRUE(narrow.resize(DType::kFloat32, dims).ok());
    EXPECT_TRUE(wide.resize(DType::kFloat64, dims).ok());
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < narrow.numel(); ++i)
      wide.data<double>()[i] = narrow.data<float>()[i] = normal(random);
  }
};

ConvAttrs attrs_of_3_by_3() {
  ConvAttrs attrs;
  attrs.window.strides = {1, 1};
  attrs.window.dilations = {1, 1};
  attrs.window.paddings = {1, 1};
  attrs.groups = 1;
  return attrs;
}

// A few roundings of a sum with that many products.
void expect_near_winograd(Tensor& found, Tensor& truth) {
  CpuDevice device;
  ASSERT_TRUE(bring_to(device, found, nullptr).ok());
  const double* const expected = truth.data<double>();
  double squares = 0;
  for (int64_t i = 0; i < truth.numel(); ++i) squares += expected[i] * expected[i];
  const double typical = std::sqrt(squares / static_cast<double>(truth.numel()));
  for (int64_t i = 0; i < truth.numel(); ++i)
    ASSERT_NEAR(found.data<float>()[i], expected[i], 2e-5 * typical) << i;
}

class Winograd : public ::testing::TestWithParam<Shape> {
 protected:
  [[nodiscard]] Dims images(int64_t channels) const {
    return {GetParam().images, channels, GetParam().size, GetParam().size};
  }
  [[nodiscard]] Dims filter() const { return {GetParam().out, GetParam().in, 3, 3}; }

  CpuDevice device_{2};
  const ConvPass::Layouts layouts_{true, false, nullptr, false};
};

TEST_P(Winograd, ForwardAndGradients) {
  for (const auto kind : {ConvPass::Kind::kForward, ConvPass::Kind::kBackwardData,
                          ConvPass::Kind::kBackwardWeights}) {
    ConvPass narrow(kind, attrs_of_3_by_3());
    ConvPass wide(kind, attrs_of_3_by_3());
    Twin a(images(GetParam().in), 1);
    Twin b(filter(), 2);
    Twin c(images(GetParam().out), 3);
    ASSERT_TRUE(narrow.run(device_, {a.narrow, b.narrow, c.narrow}, layouts_).ok());
    ASSERT_TRUE(wide.run(device_, {a.wide, b.wide, c.wide}, layouts_).ok());
    Twin& result = kind == ConvPass::Kind::kForward        ? c
                   : kind == ConvPass::Kind::kBackwardData ? a
                                                           : b;
    expect_near_winograd(result.narrow, result.wide);
  }
}

// The weights stay packed between runs until they change.
TEST_P(Winograd, KeepsWeightsUntilTheyChange) {
  ConvPass::Layouts layouts = layouts_;
  layouts.pack_weights = layouts.keep_weights = true;
  const ConvPass::Fusion fusion{dnn::Rectifier::kRelu, 0.0F};
  ConvPass narrow(ConvPass::Kind::kForward, attrs_of_3_by_3(), fusion);
  ConvPass wide(ConvPass::Kind::kForward, attrs_of_3_by_3(), fusion);
  for (const uint32_t seed : {2U, 20U}) {
    Twin w(filter(), seed);
    narrow.forget_weights();
    for (const uint32_t run : {0U, 1U}) {
      Twin x(images(GetParam().in), 7 + run);
      Twin y(images(GetParam().out), 3);
      Twin summand(images(GetParam().out), 4 + run);
      Twin bias({GetParam().out}, 5);
      ASSERT_TRUE(
          narrow
              .run(device_, {x.narrow, w.narrow, y.narrow}, layouts, &bias.narrow, &summand.narrow)
              .ok());
      ASSERT_TRUE(
          wide.run(device_, {x.wide, w.wide, y.wide}, layouts, &bias.wide, &summand.wide).ok());
      expect_near_winograd(y.narrow, y.wide);
    }
    // a single image is convolved directly, with the same weights
    Twin x({1, GetParam().in, 2, 2}, 9);
    Twin y({1, GetParam().out, 2, 2}, 9);
    ASSERT_TRUE(narrow.run(device_, {x.narrow, w.narrow, y.narrow}, layouts).ok());
    ASSERT_TRUE(wide.run(device_, {x.wide, w.wide, y.wide}, layouts).ok());
    expect_near_winograd(y.narrow, y.wide);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Winograd,
                         ::testing::Values(Shape{2, 16, 13, 16}, Shape{3, 32, 12, 48},
                                           Shape{2, 20, 12, 50}, Shape{1, 64, 21, 33},
                                           Shape{8, 16, 8, 32}));

dnn::Convolution spec_of(const Shape& s, int64_t kernel, int64_t stride) {
  dnn::Convolution spec;
  spec.src = dnn::dense(DType::kFloat32, {s.images, s.in, s.size, s.size});
  spec.weights = dnn::dense(DType::kFloat32, {s.out, s.in, kernel, kernel});
  spec.dst = dnn::dense(DType::kFloat32, {s.images, s.out, s.size / stride, s.size / stride});
  spec.strides = {stride, stride};
  spec.dilations = {1, 1};
  spec.before = spec.after = {1, 1};
  return spec;
}

TEST(WinogradPays, WithManyPlacesAChannelOnly) {
  const dnn::Convolution many = spec_of({8, 256, 14, 256}, 3, 1);
  const dnn::Convolution some = spec_of({8, 256, 7, 256}, 3, 1);
  const dnn::Convolution few = spec_of({8, 512, 7, 512}, 3, 1);
  for (const auto weights :
       {WinogradWeights::kPacked, WinogradWeights::kEachRun, WinogradWeights::kGradient}) {
    EXPECT_TRUE(winograd_pays(many, weights));
    EXPECT_EQ(winograd_pays(some, weights), weights == WinogradWeights::kPacked);
    EXPECT_FALSE(winograd_pays(few, weights));
  }
}

TEST(WinogradPays, WithWindowsOf3By3InStepsOf1Only) {
  EXPECT_FALSE(winograd_pays(spec_of({8, 64, 14, 64}, 1, 1), WinogradWeights::kPacked));
  EXPECT_FALSE(winograd_pays(spec_of({8, 64, 14, 64}, 3, 2), WinogradWeights::kPacked));
  EXPECT_FALSE(winograd_pays(spec_of({8, 3, 224, 64}, 3, 1), WinogradWeights::kPacked));
  dnn::Convolution skips = spec_of({8, 64, 14, 64}, 3, 1);
  skips.dilations = {2, 2};
  EXPECT_FALSE(winograd_pays(skips, WinogradWeights::kPacked));
  dnn::Convolution wide = spec_of({8, 64, 14, 64}, 3, 1);
  wide.src.dtype = DType::kFloat64;
  EXPECT_FALSE(winograd_pays(wide, WinogradWeights::kPacked));
}

}  // namespace
}  // namespace millrace::kernels
