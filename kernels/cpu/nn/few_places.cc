#include "kernels/cpu/nn/few_places.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/wide_loops.h"

namespace millrace::kernels {
namespace {

constexpr int64_t kMostPlaces = 16;

#ifdef __AVX2__
constexpr int64_t kNarrowLanes = detail::NarrowPlaces::kLanes;
#else
constexpr int64_t kNarrowLanes = 0;  // vectors of 256 bits would be kept in memory
#endif

}  // namespace

int64_t FewPlaces::lanes() {
  return wide_loops() != nullptr ? detail::kWideLanes : kNarrowLanes;
}

const char* FewPlaces::filter_layout() {
  return lanes() == detail::kWideLanes ? "ABcd16b16a" : "ABcd8b8a";
}

std::optional<FewPlaces> FewPlaces::plan(const dnn::Convolution& spec) {
  const Dims& x = spec.src.dims;
  const Dims& y = spec.dst.dims;
  const Dims& w = spec.weights.dims;
  if (spec.src.dtype != DType::kFloat32 || x.size() != 4 || w.size() != 4) return std::nullopt;
  const int64_t lanes = FewPlaces::lanes();
  if (lanes == 0 || x[1] % lanes != 0 || y[1] % lanes != 0 || y[2] * y[3] > kMostPlaces)
    return std::nullopt;
  FewPlaces plan;
  plan.in_blocks_ = x[1] / lanes;
  plan.out_blocks_ = y[1] / lanes;
  plan.src_plane_ = x[2] * x[3] * lanes;
  plan.dst_plane_ = y[2] * y[3] * lanes;
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
          {static_cast<int32_t>(image * src_image + (row * x[3] + column) * lanes),
           static_cast<int32_t>(image * dst_image + (i * y[3] + j) * lanes)});
    }
  }
  plan.taps_.push_back(plan.pairs_.size());
  return plan;
}

void FewPlaces::run(CpuDevice& device, const float* src, const float* diff_dst,
                    float* diff_weights) const {
  const auto taps = static_cast<int64_t>(taps_.size()) - 1;
  const int64_t block_size = taps * lanes() * lanes();
  const WideLoops* const wide = wide_loops();
  const FewPlacesWeights loop =
      wide != nullptr ? wide->few_places_weights : detail::few_places_weights<detail::NarrowPlaces>;
  device.parallel_for(out_blocks_ * in_blocks_, 16, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      loop(taps_.data(), taps, pairs_.data(), src + block % in_blocks_ * src_plane_,
           diff_dst + block / in_blocks_ * dst_plane_, diff_weights + block * block_size);
    }
  });
}

}  // namespace millrace::kernels
