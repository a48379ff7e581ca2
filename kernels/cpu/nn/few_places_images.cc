#include "kernels/cpu/nn/few_places_images.h"

#include <algorithm>

#include "kernels/cpu/nn/few_places.h"
#include "kernels/cpu/wide_loops.h"

namespace millrace::kernels {
namespace {

constexpr int64_t kGroup = kPlaceImages;
// Limits on the output positions. With one tap, the convolution is a matrix product, which the
// library does well unless there are very few positions.
constexpr int64_t kFewPlacesImagesMostPlaces = 64;
constexpr int64_t kMostPlacesOfOneTap = 4;
// Limit on the input pixels: with strides, windows read several times as many pixels as there are
// output positions.
constexpr int64_t kMostPixels = 200;

// True if the last group of images is at least half full.
bool fills_groups(int64_t images) {
  const int64_t rest = images % kGroup;
  return images > 0 && (rest == 0 || rest > kGroup / 2);
}

float rectified(dnn::Rectifier rectifier, float alpha, float x) {
  switch (rectifier) {
    case dnn::Rectifier::kRelu:
      return x > 0.0F ? x : 0.0F;
    case dnn::Rectifier::kRelu6:
      return std::min(x < 0.0F ? 0.0F : x, alpha);
    case dnn::Rectifier::kLeakyRelu:
      return x < 0.0F ? alpha * x : x;
    case dnn::Rectifier::kNone:
      break;
  }
  return x;
}

FewPlacesLoop loop_of(FewPlacesImages::Kind kind) {
  const bool forward = kind == FewPlacesImages::Kind::kForward;
  if (const WideLoops* const wide = wide_loops(); wide != nullptr)
    return forward ? wide->few_places_forward : wide->few_places_data;
  return forward ? detail::few_places_forward<detail::NarrowPlaces>
                 : detail::few_places_data<detail::NarrowPlaces>;
}

}  // namespace

std::optional<FewPlacesImages> FewPlacesImages::plan(const dnn::Convolution& spec, Kind kind) {
  const Dims& x = spec.src.dims;
  const Dims& y = spec.dst.dims;
  const Dims& w = spec.weights.dims;
  const int64_t lanes = FewPlaces::lanes();
  if (lanes == 0 || spec.src.dtype != DType::kFloat32 || x.size() != 4 || w.size() != 4 ||
      !fills_groups(x[0]))
    return std::nullopt;
  const bool forward = kind == Kind::kForward;
  const int64_t taps = w[2] * w[3];
  const int64_t result_channels = forward ? y[1] : x[1];
  const int64_t result_places = forward ? y[2] * y[3] : x[2] * x[3];
  if (x[1] % lanes != 0 || y[1] % lanes != 0 || result_channels % (2 * lanes) != 0 ||
      taps > detail::kMostTurnedTaps || x[2] * x[3] > kMostPixels ||
      result_places > (taps == 1 ? kMostPlacesOfOneTap : kFewPlacesImagesMostPlaces))
    return std::nullopt;
  FewPlacesImages plan;
  plan.kind_ = kind;
  plan.lanes_ = lanes;
  plan.count_ = x[0];
  plan.result_blocks_ = result_channels / lanes;
  plan.sizes_.blocks = (forward ? x[1] : y[1]) / lanes;
  plan.sizes_.places = forward ? x[2] * x[3] : y[2] * y[3];
  plan.sizes_.result_places = result_places;
  plan.sizes_.taps = taps;
  const int64_t in_step = taps * lanes * lanes;
  const int64_t out_step = x[1] / lanes * in_step;
  plan.sizes_.next_block = forward ? in_step : out_step;
  plan.result_stride_ = plan.sizes_.second = forward ? out_step : in_step;
  plan.accumulate_ = forward && spec.accumulate;
  plan.rectifier_ = forward ? spec.rectifier : dnn::Rectifier::kNone;
  plan.alpha_ = spec.alpha;
  std::vector<std::vector<PlaceMeeting>> of_place(static_cast<size_t>(plan.sizes_.result_places));
  for (int64_t place = 0; place < y[2] * y[3]; ++place) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t row =
          place / y[3] * spec.strides[0] - spec.before[0] + tap / w[3] * spec.dilations[0];
      const int64_t column =
          place % y[3] * spec.strides[1] - spec.before[1] + tap % w[3] * spec.dilations[1];
      if (!is_inside(row, column, x)) continue;
      const int64_t pixel = row * x[3] + column;
      of_place[static_cast<size_t>(forward ? place : pixel)].push_back(
          {static_cast<int32_t>(tap), static_cast<int32_t>(forward ? pixel : place)});
    }
  }
  for (const std::vector<PlaceMeeting>& list : of_place) {
    plan.starts_.push_back(static_cast<int32_t>(plan.meetings_.size()));
    plan.meetings_.insert(plan.meetings_.end(), list.begin(), list.end());
  }
  plan.starts_.push_back(static_cast<int32_t>(plan.meetings_.size()));
  return plan;
}

// Layout [block][position][channel][image] for one group; missing images are zero.
void FewPlacesImages::pack(const float* images, int64_t first, float* to) const {
  const int64_t there = std::min(kGroup, count_ - first);
  const int64_t image = sizes_.blocks * sizes_.places * lanes_;
  if (there < kGroup) std::fill_n(to, kGroup * image, 0.0F);
  for (int64_t n = 0; n < there; ++n) {
    const float* const from = images + (first + n) * image;
    for (int64_t i = 0; i < image; ++i) to[i * kGroup + n] = from[i];
  }
}

// Writes two blocks of the result for one group, from [position][image][2][channel].
void FewPlacesImages::finish(const float* sums, int64_t first, int64_t pair, const float* bias,
                             float* result) const {
  const int64_t there = std::min(kGroup, count_ - first);
  for (int64_t n = 0; n < there; ++n) {
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t block = 2 * pair + half;
      float* const to =
          result + ((first + n) * result_blocks_ + block) * sizes_.result_places * lanes_;
      const float* const from = sums + (2 * n + half) * lanes_;
      const float* const summand = bias == nullptr ? nullptr : bias + block * lanes_;
      for (int64_t place = 0; place < sizes_.result_places; ++place) {
        for (int64_t i = 0; i < lanes_; ++i) {
          float value = from[place * 2 * kGroup * lanes_ + i];
          if (summand != nullptr) value += summand[i];
          if (accumulate_) value += to[place * lanes_ + i];
          to[place * lanes_ + i] = rectified(rectifier_, alpha_, value);
        }
      }
    }
  }
}

Status FewPlacesImages::run(CpuDevice& device, const float* images, const float* weights,
                            const float* bias, float* result) const {
  const int64_t group = sizes_.blocks * sizes_.places * lanes_ * kGroup;
  const int64_t groups = (count_ + kGroup - 1) / kGroup;
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory,
                            device.scratch(static_cast<size_t>(groups * group) * sizeof(float), 0));
  auto* const packed = reinterpret_cast<float*>(memory);
  device.parallel_for(groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) pack(images, g * kGroup, packed + g * group);
  });
  PlaceSizes sizes = sizes_;
  sizes.starts = starts_.data();
  sizes.meetings = meetings_.data();
  const FewPlacesLoop loop = loop_of(kind_);
  device.parallel_for(result_blocks_ / 2, 1, [&](int64_t begin, int64_t end) {
    alignas(64) float sums[kFewPlacesImagesMostPlaces * 2 * detail::kWideLanes * kGroup];
    for (int64_t pair = begin; pair < end; ++pair) {
      for (int64_t g = 0; g < groups; ++g) {
        loop(sizes, packed + g * group, weights + 2 * pair * result_stride_, sums);
        finish(sums, g * kGroup, pair, bias, result);
      }
    }
  });
  return Ok();
}

}  // namespace millrace::kernels
