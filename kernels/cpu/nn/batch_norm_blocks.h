#pragma once

#include "kernels/cpu/layouts.h"
#include "kernels/device.h"

/// The loops of batch_norm over images in blocks of channels. Vectors have l.padded() elements;
/// what belongs to padding is computed like the rest and comes out as 0 where all vectors are.
namespace millrace::kernels {

/// mean[c] and variance[c] (divided by the number of elements) of each channel.
void block_moments(CpuDevice& device, const ChannelBlocks& l, const float* x, float* mean,
                   float* variance);

/// y = (x - mean[c]) * factor[c] + summand[c], not below 0 if relu. y may be x.
struct BlockAffine {
  const float* mean;
  const float* factor;
  const float* summand;
  bool relu = false;
};
void block_affine(CpuDevice& device, const ChannelBlocks& l, const BlockAffine& f, const float* x,
                  float* y);

/// dbias[c] = sum of dy; dscale[c] = sum of dy * (x - mean[c]).
void block_grad_sums(CpuDevice& device, const ChannelBlocks& l, const float* x, const float* dy,
                     const float* mean, float* dbias, float* dscale);

/// dx = factor[c] * (dy - shift[c] - (x - mean[c]) * tilt[c]). dx may be x or dy.
struct BlockGrad {
  const float* mean;
  const float* factor;
  const float* shift;
  const float* tilt;
};
void block_grad(CpuDevice& device, const ChannelBlocks& l, const BlockGrad& g, const float* x,
                const float* dy, float* dx);

}  // namespace millrace::kernels
