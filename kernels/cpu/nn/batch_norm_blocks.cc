#include "kernels/cpu/nn/batch_norm_blocks.h"

#include <algorithm>

#include <Eigen/Core>

namespace millrace::kernels {
namespace {

// Channels that are worked on at once; a block has one or more such columns.
template <int kWidth>
using Lanes = Eigen::Array<float, kWidth, 1>;
template <int kWidth>
using In = Eigen::Map<const Lanes<kWidth>>;
template <int kWidth>
using Out = Eigen::Map<Lanes<kWidth>>;

// Calls body(first channel, offset of the first element in image 0) for each column.
template <int kWidth, typename Body>
void for_columns(CpuDevice& device, const ChannelBlocks& l, Body&& body) {
  constexpr int64_t kGrain = 32768;
  const int64_t columns = l.lanes / kWidth;  // of a block
  const int64_t work = std::max<int64_t>(l.outer * l.inner * kWidth, 1);
  device.parallel_for(l.blocks * columns, std::max<int64_t>(kGrain / work, 1),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          const int64_t block = i / columns;
                          const int64_t lane = i % columns * kWidth;
                          body(block * l.lanes + lane, block * l.inner * l.lanes + lane);
                        }
                      });
}

// Sum of term(offset) over the elements of a column: four running sums an image, added up image by
// image.
template <int kWidth, typename Term>
Lanes<kWidth> sum_column(const ChannelBlocks& l, int64_t first, Term&& term) {
  using L = Lanes<kWidth>;
  L total = L::Zero();
  const int64_t image = l.padded() * l.inner;
  for (int64_t n = 0; n < l.outer; ++n) {
    int64_t at = first + n * image;
    L a = L::Zero();
    L b = L::Zero();
    L c = L::Zero();
    L d = L::Zero();
    int64_t i = 0;
    for (; i + 4 <= l.inner; i += 4, at += 4 * l.lanes) {
      a += term(at);
      b += term(at + l.lanes);
      c += term(at + 2 * l.lanes);
      d += term(at + 3 * l.lanes);
    }
    for (; i < l.inner; ++i, at += l.lanes) a += term(at);
    total += (a + b) + (c + d);
  }
  return total;
}

template <typename Body>
void for_elements(const ChannelBlocks& l, int64_t first, Body&& body) {
  const int64_t image = l.padded() * l.inner;
  for (int64_t n = 0; n < l.outer; ++n) {
    int64_t at = first + n * image;
    for (int64_t i = 0; i < l.inner; ++i, at += l.lanes) body(at);
  }
}

template <int kWidth>
void moments(CpuDevice& device, const ChannelBlocks& l, const float* x, float* mean,
             float* variance) {
  using L = Lanes<kWidth>;
  const float share = 1.0F / static_cast<float>(l.outer * l.inner);
  for_columns<kWidth>(device, l, [&](int64_t channel, int64_t first) {
    const L middle =
        sum_column<kWidth>(l, first, [x](int64_t at) { return In<kWidth>(x + at); }) * share;
    const L spread = sum_column<kWidth>(
        l, first, [x, middle](int64_t at) -> L { return (In<kWidth>(x + at) - middle).square(); });
    Out<kWidth>(mean + channel) = middle;
    Out<kWidth>(variance + channel) = spread * share;
  });
}

template <int kWidth>
void affine(CpuDevice& device, const ChannelBlocks& l, const BlockAffine& f, const float* x,
            float* y) {
  using L = Lanes<kWidth>;
  for_columns<kWidth>(device, l, [&](int64_t channel, int64_t first) {
    const L mean = In<kWidth>(f.mean + channel);
    const L factor = In<kWidth>(f.factor + channel);
    const L summand = In<kWidth>(f.summand + channel);
    if (f.relu) {
      for_elements(l, first, [&](int64_t at) {
        Out<kWidth>(y + at) = ((In<kWidth>(x + at) - mean) * factor + summand).max(0.0F);
      });
    } else {
      for_elements(l, first, [&](int64_t at) {
        Out<kWidth>(y + at) = (In<kWidth>(x + at) - mean) * factor + summand;
      });
    }
  });
}

template <int kWidth>
void grad_sums(CpuDevice& device, const ChannelBlocks& l, const float* x, const float* dy,
               const float* mean, float* dbias, float* dscale) {
  using L = Lanes<kWidth>;
  for_columns<kWidth>(device, l, [&](int64_t channel, int64_t first) {
    const L middle = In<kWidth>(mean + channel);
    Out<kWidth>(dbias + channel) =
        sum_column<kWidth>(l, first, [dy](int64_t at) { return In<kWidth>(dy + at); });
    Out<kWidth>(dscale + channel) = sum_column<kWidth>(l, first, [dy, x, middle](int64_t at) -> L {
      return In<kWidth>(dy + at) * (In<kWidth>(x + at) - middle);
    });
  });
}

template <int kWidth>
void grad(CpuDevice& device, const ChannelBlocks& l, const BlockGrad& g, const float* x,
          const float* dy, float* dx) {
  using L = Lanes<kWidth>;
  for_columns<kWidth>(device, l, [&](int64_t channel, int64_t first) {
    const L mean = In<kWidth>(g.mean + channel);
    const L factor = In<kWidth>(g.factor + channel);
    const L shift = In<kWidth>(g.shift + channel);
    const L tilt = In<kWidth>(g.tilt + channel);
    for_elements(l, first, [&](int64_t at) {
      const L value = factor * (In<kWidth>(dy + at) - shift - (In<kWidth>(x + at) - mean) * tilt);
      Out<kWidth>(dx + at) = value;
    });
  });
}

bool is_wide(const ChannelBlocks& l) {
  return l.lanes % 16 == 0;
}

}  // namespace

void block_moments(CpuDevice& device, const ChannelBlocks& l, const float* x, float* mean,
                   float* variance) {
  is_wide(l) ? moments<16>(device, l, x, mean, variance) : moments<8>(device, l, x, mean, variance);
}

void block_affine(CpuDevice& device, const ChannelBlocks& l, const BlockAffine& f, const float* x,
                  float* y) {
  is_wide(l) ? affine<16>(device, l, f, x, y) : affine<8>(device, l, f, x, y);
}

void block_grad_sums(CpuDevice& device, const ChannelBlocks& l, const float* x, const float* dy,
                     const float* mean, float* dbias, float* dscale) {
  is_wide(l) ? grad_sums<16>(device, l, x, dy, mean, dbias, dscale)
             : grad_sums<8>(device, l, x, dy, mean, dbias, dscale);
}

void block_grad(CpuDevice& device, const ChannelBlocks& l, const BlockGrad& g, const float* x,
                const float* dy, float* dx) {
  is_wide(l) ? grad<16>(device, l, g, x, dy, dx) : grad<8>(device, l, g, x, dy, dx);
}

}  // namespace millrace::kernels
