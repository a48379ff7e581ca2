#include "kernels/cpu/nn/one_channel.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "kernels/cpu/transpose_tile.h"

namespace millrace::kernels {
namespace one_channel {
namespace {

constexpr int64_t kLanes = OneChannel::kLanes;
constexpr int64_t kMostTaps = 8;

using Lanes [[gnu::vector_size(4 * kLanes)]] = float;
using Stored [[gnu::vector_size(4 * kLanes), gnu::aligned(4), gnu::may_alias]] = float;

Lanes load(const float* at) {
  return *reinterpret_cast<const Stored*>(at);
}
void add_to(float* at, const Lanes& sum) {
  *reinterpret_cast<Stored*>(at) += sum;
}

// A line of the input and the line of the result that a row of the filter meets it in.
struct Line {
  const float* src;    // its first element
  const float* dst;    // kLanes channels of each position
  int64_t size;        // of the input
  int64_t places;      // of the result
  int64_t stride;      // from position to position in the input
  int64_t dilation;    // from tap to tap
  int64_t first;       // element that tap 0 reads for position 0; negative in the padding
  int64_t begin, end;  // positions whose taps are all inside of the input
};

template <int kTaps>
void add_line(const Line& line, Lanes* sums) {
  const auto add_edge = [&](int64_t begin, int64_t end) {
    for (int64_t place = begin; place < end; ++place) {
      const Lanes value = load(line.dst + place * kLanes);
      for (int tap = 0; tap < kTaps; ++tap) {
        const int64_t at = line.first + place * line.stride + tap * line.dilation;
        if (at >= 0 && at < line.size) sums[tap] += line.src[at] * value;
      }
    }
  };
  add_edge(0, line.begin);
  Lanes inner[kTaps] = {};  // in registers
  for (int64_t place = line.begin; place < line.end; ++place) {
    const Lanes value = load(line.dst + place * kLanes);
    const float* const x = line.src + line.first + place * line.stride;
#pragma GCC unroll 8
    for (int tap = 0; tap < kTaps; ++tap) inner[tap] += x[tap * line.dilation] * value;
  }
  for (int tap = 0; tap < kTaps; ++tap) sums[tap] += inner[tap];
  add_edge(line.end, line.places);
}

using AddLine = void (*)(const Line&, Lanes*);
template <int... kTaps>
AddLine choose(int64_t taps, std::integer_sequence<int, kTaps...>) {
  static constexpr AddLine kAll[] = {&add_line<kTaps + 1>...};
  return kAll[taps - 1];
}
AddLine add_line_of(int64_t taps) {
  return choose(taps, std::make_integer_sequence<int, kMostTaps>());
}

// Sets begin and end. Positions grow with the element that they read.
void find_inside(Line& line, int64_t taps) {
  const auto up = [&](int64_t distance) {
    return distance <= 0 ? 0 : (distance + line.stride - 1) / line.stride;
  };
  const int64_t last = line.first + (taps - 1) * line.dilation;
  line.begin = std::min(up(-line.first), line.places);
  line.end = std::clamp(up(line.size - last), line.begin, line.places);
}

}  // namespace
}  // namespace one_channel

std::optional<OneChannel> OneChannel::plan(const dnn::Convolution& spec) {
  const Dims& x = spec.src.dims;
  const Dims& y = spec.dst.dims;
  const Dims& w = spec.weights.dims;
  const bool is_plain = x.size() == 4 && w.size() == 4 && spec.src.dtype == DType::kFloat32;
  if (!is_plain || x[1] != 1 || w[3] > one_channel::kMostTaps) return std::nullopt;
  OneChannel plan;
  plan.batch_ = x[0];
  plan.channels_ = y[1];
  for (size_t i = 0; i < 2; ++i) {
    plan.size_[i] = x[2 + i];
    plan.places_[i] = y[2 + i];
    plan.kernel_[i] = w[2 + i];
    plan.strides_[i] = spec.strides[i];
    plan.dilations_[i] = spec.dilations[i];
    plan.before_[i] = spec.before[i];
  }
  return plan;
}

bool OneChannel::writes(const Layout& layout) {
  std::string name = layout.name();
  std::erase(name, 'b');  // the place of a dim of size 1 does not matter
  return name == "Acd8a";
}

void OneChannel::sum_row(const float* src, const float* dst, int64_t block, int64_t row,
                         float* sums) const {
  using namespace one_channel;
  const AddLine add_line = add_line_of(kernel_[1]);
  const int64_t blocks = (channels_ + kLanes - 1) / kLanes;
  Line line{nullptr, nullptr, size_[1], places_[1], strides_[1], dilations_[1], -before_[1], 0, 0};
  find_inside(line, kernel_[1]);
  std::fill_n(sums, kernel_[1] * kLanes, 0.0F);
  for (int64_t image = 0; image < batch_; ++image) {
    Lanes own[kMostTaps] = {};
    for (int64_t place = 0; place < places_[0]; ++place) {
      const int64_t y = place * strides_[0] - before_[0] + row * dilations_[0];
      if (y < 0 || y >= size_[0]) continue;
      line.src = src + (image * size_[0] + y) * size_[1];
      line.dst = dst + ((image * blocks + block) * places_[0] + place) * places_[1] * kLanes;
      add_line(line, own);
    }
    for (int64_t tap = 0; tap < kernel_[1]; ++tap) add_to(sums + tap * kLanes, own[tap]);
  }
}

Status OneChannel::run(CpuDevice& device, const float* src, const float* diff_dst, bool blocked,
                       float* diff_weights, bool packed) const {
  using namespace one_channel;
  const int64_t blocks = (channels_ + kLanes - 1) / kLanes;
  const int64_t plane = places_[0] * places_[1];
  if (!blocked) {
    const int64_t count = batch_ * blocks * plane * kLanes;
    MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory,
                              device.scratch(static_cast<size_t>(count) * sizeof(float)));
    auto* const to = reinterpret_cast<uint32_t*>(memory);
    const auto* const from = reinterpret_cast<const uint32_t*>(diff_dst);
    device.parallel_for(batch_ * blocks, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % blocks * kLanes;
        const int64_t lanes = std::min(kLanes, channels_ - first);
        uint32_t* const block = to + i * plane * kLanes;
        if (lanes < kLanes) std::fill_n(block, plane * kLanes, 0U);
        transpose_plane(block, kLanes, from + (i / blocks * channels_ + first) * plane, plane,
                        plane, lanes);
      }
    });
    diff_dst = reinterpret_cast<const float*>(memory);
  }
  device.parallel_for(blocks * kernel_[0], 1, [&](int64_t begin, int64_t end) {
    std::array<float, kMostTaps * kLanes> sums;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t block = i / kernel_[0];
      const int64_t row = i % kernel_[0];
      sum_row(src, diff_dst, block, row, sums.data());
      if (packed) {
        std::copy_n(sums.data(), kernel_[1] * kLanes, diff_weights + i * kernel_[1] * kLanes);
        continue;
      }
      const int64_t lanes = std::min(kLanes, channels_ - block * kLanes);
      for (int64_t lane = 0; lane < lanes; ++lane) {
        float* const to = diff_weights + ((block * kLanes + lane) * kernel_[0] + row) * kernel_[1];
        for (int64_t tap = 0; tap < kernel_[1]; ++tap)
          to[tap] = sums[static_cast<size_t>(tap * kLanes + lane)];
      }
    }
  });
  return Ok();
}

}  // namespace millrace::kernels
