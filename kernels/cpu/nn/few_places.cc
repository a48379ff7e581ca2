#include "kernels/cpu/nn/few_places.h"

#include <algorithm>
#include <limits>

#include <Eigen/Core>

#include "kernels/cpu/wide_loops.h"

namespace millrace::kernels {
namespace {

constexpr int64_t kFewPlacesLanes = 16;
constexpr int64_t kFewPlacesMostPlaces = 4;
constexpr int64_t kMostPlacesOfWide = 16;

using Half = Eigen::Array<float, kFewPlacesLanes / 2, 1>;
using In = Eigen::Map<const Half>;
using Out = Eigen::Map<Half>;

// Four rows of a block of the gradient: out[i][o] = sum of src[i] * dst[o] over pairs.
void four_rows(const PlacePair* begin, const PlacePair* end, const float* src, const float* dst,
               float* out) {
  Half a0 = Half::Zero();
  Half a1 = Half::Zero();
  Half b0 = Half::Zero();
  Half b1 = Half::Zero();
  Half c0 = Half::Zero();
  Half c1 = Half::Zero();
  Half d0 = Half::Zero();
  Half d1 = Half::Zero();
  for (const PlacePair* pair = begin; pair != end; ++pair) {
    const float* const x = src + pair->src;
    const Half y0 = In(dst + pair->dst);
    const Half y1 = In(dst + pair->dst + kFewPlacesLanes / 2);
    a0 += x[0] * y0;
    a1 += x[0] * y1;
    b0 += x[1] * y0;
    b1 += x[1] * y1;
    c0 += x[2] * y0;
    c1 += x[2] * y1;
    d0 += x[3] * y0;
    d1 += x[3] * y1;
  }
  constexpr int64_t kHalf = kFewPlacesLanes / 2;
  Out{out} = a0;
  Out{out + kHalf} = a1;
  Out{out + 2 * kHalf} = b0;
  Out{out + 3 * kHalf} = b1;
  Out{out + 4 * kHalf} = c0;
  Out{out + 5 * kHalf} = c1;
  Out{out + 6 * kHalf} = d0;
  Out{out + 7 * kHalf} = d1;
}

}  // namespace

std::optional<FewPlaces> FewPlaces::plan(const dnn::Convolution& spec) {
  const Dims& x = spec.src.dims;
  const Dims& y = spec.dst.dims;
  const Dims& w = spec.weights.dims;
  if (spec.src.dtype != DType::kFloat32 || x.size() != 4 || w.size() != 4) return std::nullopt;
  const int64_t most = wide_loops() != nullptr ? kMostPlacesOfWide : kFewPlacesMostPlaces;
  if (x[1] % kFewPlacesLanes != 0 || y[1] % kFewPlacesLanes != 0 || y[2] * y[3] > most)
    return std::nullopt;
  FewPlaces plan;
  plan.in_blocks_ = x[1] / kFewPlacesLanes;
  plan.out_blocks_ = y[1] / kFewPlacesLanes;
  plan.src_plane_ = x[2] * x[3] * kFewPlacesLanes;
  plan.dst_plane_ = y[2] * y[3] * kFewPlacesLanes;
  const int64_t src_image = plan.in_blocks_ * plan.src_plane_;
  const int64_t dst_image = plan.out_blocks_ * plan.dst_plane_;
  if (x[0] * std::max(src_image, dst_image) > std::numeric_limits<int32_t>::max())
    return std::nullopt;
  for (int64_t tap = 0; tap < w[2] * w[3]; ++tap) {
    plan.taps_.push_back(plan.pairs_.size());
    for (int64_t place = 0; place < x[0] * y[2] * y[3]; ++place) {
      const int64_t image = place / (y[2] * y[3]);
      const int64_t i = place / y[3] % y[2];
      const int64_t j = place % y[3];
      const int64_t row = i * spec.strides[0] - spec.before[0] + tap / w[3] * spec.dilations[0];
      const int64_t column = j * spec.strides[1] - spec.before[1] + tap % w[3] * spec.dilations[1];
      if (!is_inside(row, column, x)) continue;
      plan.pairs_.push_back(
          {static_cast<int32_t>(image * src_image + (row * x[3] + column) * kFewPlacesLanes),
           static_cast<int32_t>(image * dst_image + (i * y[3] + j) * kFewPlacesLanes)});
    }
  }
  plan.taps_.push_back(plan.pairs_.size());
  return plan;
}

void FewPlaces::run(CpuDevice& device, const float* src, const float* diff_dst,
                    float* diff_weights) const {
  const auto taps = static_cast<int64_t>(taps_.size()) - 1;
  const WideLoops* const wide = wide_loops();
  device.parallel_for(out_blocks_ * in_blocks_, 16, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const float* const x = src + block % in_blocks_ * src_plane_;
      const float* const y = diff_dst + block / in_blocks_ * dst_plane_;
      if (wide != nullptr) {
        wide->few_places_weights(taps_.data(), taps, pairs_.data(), x, y,
                                 diff_weights + block * taps * kFewPlacesLanes * kFewPlacesLanes);
        continue;
      }
      for (int64_t tap = 0; tap < taps; ++tap) {
        float* const out = diff_weights + (block * taps + tap) * kFewPlacesLanes * kFewPlacesLanes;
        const PlacePair* const first = pairs_.data() + taps_[static_cast<size_t>(tap)];
        const PlacePair* const last = pairs_.data() + taps_[static_cast<size_t>(tap) + 1];
        for (int64_t i = 0; i < kFewPlacesLanes; i += 4)
          four_rows(first, last, x + i, y, out + i * kFewPlacesLanes);
      }
    }
  });
}

}  // namespace millrace::kernels
