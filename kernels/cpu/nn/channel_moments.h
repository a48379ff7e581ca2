#pragma once

#include "kernels/cpu/lane_sum.h"
#include "kernels/cpu/nn/channels.h"
#include "kernels/dispatch.h"

// Sums and maps over the channels [begin, end) of images, for batch_norm and related ops. All loops
// run over contiguous memory: over the pixels of a plane, or over the channels of a pixel.
// A caller on several threads passes disjoint ranges of channels (ChannelLayout::for_channels()).
// Results do not depend on how the channels are divided: each channel is summed in the same order.
namespace millrace::kernels {

/// sums[c] = sum of f(c)(position) over channel c. f(c) returns a function that captures the
/// constants of the channel by value, so that the loops vectorize. A position is an offset in
/// elements into the image tensor; C is the type in which sums are computed.
template <typename C, typename F>
void sum_channel_range(const ChannelLayout& l, int64_t begin, int64_t end, C* sums, F&& f) {
  std::fill(sums + begin, sums + end, C{0});
  for (int64_t n = 0; n < l.outer; ++n) {
    if (l.inner == 1) {
      const int64_t row = n * l.channels;
      for (int64_t c = begin; c < end; ++c) sums[c] += f(c)(row + c);
      continue;
    }
    for (int64_t c = begin; c < end; ++c) {
      const int64_t plane = (n * l.channels + c) * l.inner;
      const auto term = f(c);
      sums[c] += lane_sum<C>(l.inner, [&](int64_t i) { return term(plane + i); });
    }
  }
}

/// y[position] = f(c)(position) for all positions of the channels.
template <typename T, typename F>
void map_channel_range(const ChannelLayout& l, int64_t begin, int64_t end, T* y, F&& f) {
  for (int64_t n = 0; n < l.outer; ++n) {
    if (l.inner == 1) {
      const int64_t row = n * l.channels;
      for (int64_t c = begin; c < end; ++c) y[row + c] = static_cast<T>(f(c)(row + c));
      continue;
    }
    for (int64_t c = begin; c < end; ++c) {
      const int64_t plane = (n * l.channels + c) * l.inner;
      const auto value = f(c);
      for (int64_t i = plane; i < plane + l.inner; ++i) y[i] = static_cast<T>(value(i));
    }
  }
}

/// Mean and variance (divided by the number of elements) of each channel; of_channel() > 0.
template <typename T, typename C>
void channel_moments(const ChannelLayout& l, int64_t begin, int64_t end, const T* x, C* mean,
                     C* variance) {
  const C share = C{1} / static_cast<C>(l.of_channel());
  sum_channel_range(l, begin, end, mean,
                    [x](int64_t) { return [x](int64_t at) { return static_cast<C>(x[at]); }; });
  for (int64_t c = begin; c < end; ++c) mean[c] *= share;
  sum_channel_range(l, begin, end, variance, [x, mean](int64_t c) {
    return [x, middle = mean[c]](int64_t at) {
      const C distance = static_cast<C>(x[at]) - middle;
      return distance * distance;
    };
  });
  for (int64_t c = begin; c < end; ++c) variance[c] *= share;
}

}  // namespace millrace::kernels
