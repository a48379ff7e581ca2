#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cpu/nn/few_places_loops.h"
#include "kernels/cpu/onednn.h"
#include "kernels/device.h"

namespace millrace::kernels {

/// The gradient of the filter of a convolution whose result has very few positions per image.
/// oneDNN reads and writes the whole gradient once per image. If images have four pixels and
/// filters are megabytes in size, that takes several times as long as one pass over all images of a
/// batch.
///
/// Images are in blocks of lanes() channels, the filter in blocks of as many output and input
/// channels ([out / lanes][in / lanes][kernel...][lanes in][lanes out]).
class FewPlaces {
 public:
  /// Channels of a block: 16 with 512-bit vectors, 8 with 256-bit ones, the blocks that oneDNN
  /// chooses there. 0 if the build has neither.
  static int64_t lanes();
  /// oneDNN's name of the filter's layout.
  static const char* filter_layout();
  /// nullopt if the convolution does not qualify. It must have f32, two spatial dims, one group,
  /// channels in whole blocks, and at most 16 output positions.
  static std::optional<FewPlaces> plan(const dnn::Convolution& spec);

  /// Computes the gradient of the whole batch. Runs on the threads of the device, which share the
  /// blocks of the filter; the result does not depend on their number.
  /// \param src           images of the input, in blocks of channels
  /// \param diff_dst      gradient of the result, in blocks of channels
  /// \param diff_weights  overwritten, in the layout filter_layout(); overlaps no operand
  void run(CpuDevice& device, const float* src, const float* diff_dst, float* diff_weights) const;

 private:
  int64_t in_blocks_ = 0;   ///< blocks of input channels
  int64_t out_blocks_ = 0;  ///< blocks of result channels
  int64_t src_plane_ = 0;   // elements of one channel block of one image
  int64_t dst_plane_ = 0;
  std::vector<PlacePair> pairs_;  ///< of all taps, one after the other
  std::vector<size_t> taps_;      // start of the pairs of each tap, then the end
};

}  // namespace millrace::kernels
