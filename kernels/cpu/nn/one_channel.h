#pragma once

#include <cstdint>
#include <optional>

#include "framework/base/status.h"
#include "framework/tensor/layout.h"
#include "kernels/cpu/onednn.h"
#include "kernels/device.h"

namespace millrace::kernels {

/// The gradient of the filter of a convolution of images with one channel, such as digits.
/// oneDNN 2.6 computes it as if there were eight channels where it has AVX2 only.
///
/// The eight output channels of a block are the lanes of a register, and the taps of a row of the
/// filter are summed up together. Sums of an image are added to those of the images before it.
class OneChannel {
 public:
  /// nullopt if the convolution does not qualify: f32, two spatial dims, channels first, one input
  /// channel, filters of at most eight columns.
  static std::optional<OneChannel> plan(const dnn::Convolution& spec);
  /// True if run() can write the gradient in this layout: blocks of eight output channels,
  /// [out / 8][kernel height][kernel width][8 out].
  static bool writes(const Layout& layout);

  /// Output channels of a block.
  static constexpr int64_t kLanes = 8;

  /// Computes the gradient of the whole batch. Runs on the threads of the device; the result does
  /// not depend on their number. Uses scratch slot 0. Errors: kResource.
  /// \param src           images of the input, row-major
  /// \param diff_dst      gradient of the result, [batch, channels, height, width]
  /// \param blocked       diff_dst is in blocks of eight channels, otherwise row-major
  /// \param diff_weights  overwritten: row-major, or with `packed` in blocks of eight output
  /// channels
  Status run(CpuDevice& device, const float* src, const float* diff_dst, bool blocked,
             float* diff_weights, bool packed) const;

 private:
  /// Sums of one row of the filters of one block: sums[tap * kLanes + channel].
  void sum_row(const float* src, const float* dst, int64_t block, int64_t row, float* sums) const;

  int64_t batch_ = 0;
  int64_t channels_ = 0;    ///< of the result
  int64_t size_[2] = {};    ///< height and width of the input
  int64_t places_[2] = {};  ///< of the result
  int64_t kernel_[2] = {};  ///< of the filter
  int64_t strides_[2] = {};
  int64_t dilations_[2] = {};
  int64_t before_[2] = {};  ///< padding on top and on the left
};

}  // namespace millrace::kernels
