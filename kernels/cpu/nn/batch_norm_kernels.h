#pragma once

#include "kernels/cpu/nn/channel_moments.h"

// The gradient of batch normalization over row-major images, for the ops that contain one:
// batch_norm, sync_batch_norm and inplace_abn. Images in blocks of channels have loops of their own
// (norm_columns.h).
namespace millrace::kernels {

/// Maker of the kernel of batch_norm, for ops that contain a batch normalization.
/// The schema is that of batch_norm (ops/nn/batch_norm.cc). Errors: those of the maker of
/// batch_norm.
StatusOr<Kernel> batch_norm_kernel(const KernelSetup& op);
/// Maker of the kernel of its gradient.
StatusOr<Kernel> batch_norm_grad_kernel(const KernelSetup& op);

/// Operands of the gradient of a batch normalization; vectors have one element per channel, absent
/// operands are null.
/// T is the type of the images and of their gradients; vectors and sums have type Compute<T>, which
/// is f32 for 16-bit images.
template <typename T>
struct BatchNormGrad {
  using C = Compute<T>;
  const T* x;          ///< images, normalized by the forward op
  const T* dy;         ///< gradient of the result, with the dims of x
  const C* scale;      ///< null: 1
  const C* mean;       ///< that the forward op subtracted
  const C* deviation;  ///< 1 / sqrt(variance + epsilon) that it multiplied with
  T* dx;               ///< may be x or dy
  C* dscale;           ///< never null; the same for dbias
  C* dbias;
  C* work;                   ///< three elements per channel
  bool constant_statistics;  ///< mean and variance are not functions of x
};

/// For channels [begin, end): dbias = sum of dy; dscale = sum of dy * (x - mean), which the caller
/// multiplies with the deviation.
/// \param x, dy                 images with layout l
/// \param mean, dbias, dscale  one element per channel, indexed from channel 0
template <typename T, typename C>
void batch_norm_gradient_sums(const ChannelLayout& l, int64_t begin, int64_t end, const T* x,
                              const T* dy, const C* mean, C* dbias, C* dscale) {
  sum_channel_range(l, begin, end, dbias,
                    [dy](int64_t) { return [dy](int64_t at) { return static_cast<C>(dy[at]); }; });
  sum_channel_range(l, begin, end, dscale, [x, dy, mean](int64_t c) {
    return [x, dy, middle = mean[c]](int64_t at) {
      return static_cast<C>(dy[at]) * (static_cast<C>(x[at]) - middle);
    };
  });
}

/// dbias = sum of dy; dscale = sum of dy * (x - mean) * deviation; and dx, which includes the
/// gradient through the statistics unless they are constant.
/// \param l      layout of x, dy and dx
/// \param begin  first channel; the call computes channels [begin, end) and touches no other, so
/// that threads may work on disjoint ranges
template <typename T>
void batch_norm_gradient(const BatchNormGrad<T>& g, const ChannelLayout& l, int64_t begin,
                         int64_t end) {
  using C = Compute<T>;
  const T* const x = g.x;
  const T* const dy = g.dy;
  const C* const mean = g.mean;
  batch_norm_gradient_sums(l, begin, end, x, dy, mean, g.dbias, g.dscale);
  // dx = factor * (dy - shift - (x - mean) * tilt)
  C* const factor = g.work;
  C* const shift = factor + l.channels;
  C* const tilt = shift + l.channels;
  // the derivative of a mean: each element contributes 1 / count
  const C share = g.constant_statistics ? C{0} : C{1} / static_cast<C>(l.of_channel());
  for (int64_t c = begin; c < end; ++c) {
    g.dscale[c] *= g.deviation[c];
    factor[c] = g.scale == nullptr ? g.deviation[c] : g.deviation[c] * g.scale[c];
    shift[c] = g.dbias[c] * share;
    tilt[c] = g.deviation[c] * g.dscale[c] * share;
  }
  if (g.dx == nullptr) return;
  if (g.constant_statistics) {
    map_channel_range(l, begin, end, g.dx, [dy, factor](int64_t c) {
      return [dy, times = factor[c]](int64_t at) { return static_cast<C>(dy[at]) * times; };
    });
    return;
  }
  // Subtracts the mean of dy and the component of dy along the normalized x.
  map_channel_range(l, begin, end, g.dx, [x, dy, mean, factor, shift, tilt](int64_t c) {
    return
        [x, dy, middle = mean[c], times = factor[c], less = shift[c], slope = tilt[c]](int64_t at) {
          const C distance = static_cast<C>(x[at]) - middle;
          return times * (static_cast<C>(dy[at]) - less - distance * slope);
        };
  });
}

}  // namespace millrace::kernels
