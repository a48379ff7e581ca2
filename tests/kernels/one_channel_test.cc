// The gradient of filters for images with one channel, compared with plain loops in double.
#include "kernels/cpu/nn/one_channel.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/nn/plain_conv.h"

namespace millrace::kernels {
namespace {

struct OneChannelCase {
  int64_t images, size, out, kernel, stride, dilation, before, after;
};
void PrintTo(const OneChannelCase& c, std::ostream* to) {
  *to << c.images << " images of " << c.size << " to " << c.out << ", kernel " << c.kernel
      << ", stride " << c.stride << ", dilation " << c.dilation << ", padding " << c.before
      << " and " << c.after;
}

class OneChannelTest : public ::testing::TestWithParam<OneChannelCase> {
 protected:
  static constexpr int64_t kLanes = OneChannel::kLanes;

  OneChannelTest() {
    const OneChannelCase& c = GetParam();
    const auto places_of = [&](int64_t size) {
      return (size + c.before + c.after - (c.kernel - 1) * c.dilation - 1) / c.stride + 1;
    };
    // higher than wide, so that mixed up dims are noticed
    const int64_t high = places_of(c.size + 3);
    places_ = high * places_of(c.size);
    spec_.src = dnn::dense(DType::kFloat32, {c.images, 1, c.size + 3, c.size});
    spec_.weights = dnn::dense(DType::kFloat32, {c.out, 1, c.kernel, c.kernel});
    spec_.dst = dnn::dense(DType::kFloat32, {c.images, c.out, high, places_of(c.size)});
    spec_.strides = {c.stride, c.stride};
    spec_.dilations = {c.dilation, c.dilation};
    spec_.before = {c.before, c.before};
    spec_.after = {c.after, c.after};
    src_ = numbers(c.images * (c.size + 3) * c.size, 1);
    diff_ = numbers(c.images * c.out * places_, 2);
    expected_.resize(static_cast<size_t>(c.out * c.kernel * c.kernel));
    CpuDevice device;
    const std::vector<double> src(src_.begin(), src_.end());
    const std::vector<double> diff(diff_.begin(), diff_.end());
    const Status done = plain_convolution_backward_weights(device, spec_, src.data(), diff.data(),
                                                           expected_.data());
    EXPECT_TRUE(done.ok()) << done.to_string();
  }

  static std::vector<float> numbers(int64_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = uniform(random);
    return values;
  }

  // diff_ in blocks of eight channels.
  [[nodiscard]] std::vector<float> blocked_diff() const {
    const OneChannelCase& c = GetParam();
    const int64_t blocks = (c.out + kLanes - 1) / kLanes;
    std::vector<float> blocked(static_cast<size_t>(c.images * blocks * places_ * kLanes));
    for (int64_t n = 0; n < c.images; ++n) {
      for (int64_t o = 0; o < c.out; ++o) {
        for (int64_t p = 0; p < places_; ++p) {
          const int64_t to = ((n * blocks + o / kLanes) * places_ + p) * kLanes + o % kLanes;
          blocked[static_cast<size_t>(to)] =
              diff_[static_cast<size_t>((n * c.out + o) * places_ + p)];
        }
      }
    }
    return blocked;
  }

  void expect_gradient(int threads, const std::vector<float>& diff, bool blocked, bool packed) {
    const OneChannelCase& c = GetParam();
    const int64_t taps = c.kernel * c.kernel;
    const int64_t padded = (c.out + kLanes - 1) / kLanes * kLanes;
    std::vector<float> found(static_cast<size_t>((packed ? padded : c.out) * taps), -7.0F);
    const auto plan = OneChannel::plan(spec_);
    ASSERT_TRUE(plan);
    CpuDevice device(threads);
    const Status done = plan->run(device, src_.data(), diff.data(), blocked, found.data(), packed);
    ASSERT_TRUE(done.ok()) << done.to_string();
    for (int64_t o = 0; o < (packed ? padded : c.out); ++o) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t at =
            packed ? (o / kLanes * taps + tap) * kLanes + o % kLanes : o * taps + tap;
        const double expected = o < c.out ? expected_[static_cast<size_t>(o * taps + tap)] : 0.0;
        ASSERT_NEAR(found[static_cast<size_t>(at)], expected, 2e-5)
            << "output " << o << ", tap " << tap;
      }
    }
  }

  int64_t places_ = 0;
  dnn::Convolution spec_;
  std::vector<float> src_, diff_;
  std::vector<double> expected_;
};

TEST_P(OneChannelTest, EqualsPlainLoopsInAllLayoutsOnAnyThreads) {
  for (const int threads : {1, 3}) {
    for (const bool packed : {false, true}) {
      expect_gradient(threads, diff_, false, packed);
      expect_gradient(threads, blocked_diff(), true, packed);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, OneChannelTest,
                         ::testing::Values(OneChannelCase{3, 28, 6, 5, 1, 1, 2, 2},
                                           OneChannelCase{2, 12, 20, 5, 1, 1, 0, 0},
                                           OneChannelCase{2, 9, 8, 3, 2, 1, 1, 1},
                                           OneChannelCase{1, 11, 9, 3, 1, 2, 3, 0},
                                           OneChannelCase{2, 10, 16, 7, 2, 1, 3, 3},
                                           OneChannelCase{2, 9, 3, 8, 1, 1, 7, 7},
                                           OneChannelCase{4, 5, 1, 1, 1, 1, 0, 0},
                                           OneChannelCase{1, 3, 8, 2, 3, 4, 5, 6},
                                           OneChannelCase{2, 2, 5, 6, 1, 1, 5, 2}));

TEST(OneChannel, OtherConvolutionsDoNotQualify) {
  dnn::Convolution spec;
  spec.src = dnn::dense(DType::kFloat32, {2, 1, 9, 9});
  spec.weights = dnn::dense(DType::kFloat32, {4, 1, 3, 3});
  spec.dst = dnn::dense(DType::kFloat32, {2, 4, 7, 7});
  spec.strides = spec.dilations = {1, 1};
  spec.before = spec.after = {0, 0};
  EXPECT_TRUE(OneChannel::plan(spec));
  dnn::Convolution wide = spec;
  wide.weights.dims[3] = 9;
  EXPECT_FALSE(OneChannel::plan(wide));
  dnn::Convolution colored = spec;
  colored.src.dims[1] = 3;
  EXPECT_FALSE(OneChannel::plan(colored));
  dnn::Convolution rounded = spec;
  rounded.src.dtype = DType::kBfloat16;
  EXPECT_FALSE(OneChannel::plan(rounded));
}

}  // namespace
}  // namespace millrace::kernels
