#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cpu/nn/few_places_loops.h"
#include "kernels/cpu/onednn.h"
#include "kernels/device.h"

namespace millrace::kernels {

/// The gradient of the filter of a convolution whose result has very few places an image. oneDNN
/// goes over the whole gradient once an image; where images are four pixels large and filters are
/// megabytes, that takes several times as long as one pass over all images of a batch.
///
/// Images are in blocks of 16 channels, the filter in blocks of 16 output and 16 input channels
/// ([out / 16][in / 16][kernel...][16 in][16 out]).
class FewPlaces {
 public:
  /// nullopt if the convolution is not of this kind: f32, two spatial dims, one group, channels in
  /// whole blocks, at most four places, or 16 with vectors of 512 bits.
  static std::optional<FewPlaces> plan(const dnn::Convolution& spec);
  /// The layout of the filter by the name that oneDNN gives it.
  static constexpr const char* kFilterLayout = "ABcd16b16a";

  void run(CpuDevice& device, const float* src, const float* diff_dst, float* diff_weights) const;

 private:
  int64_t in_blocks_ = 0;
  int64_t out_blocks_ = 0;
  int64_t src_plane_ = 0;  // elements of a block of channels of one image
  int64_t dst_plane_ = 0;
  std::vector<PlacePair> pairs_;
  std::vector<size_t> taps_;  // where the pairs of each tap begin, and the end
};

}  // namespace millrace::kernels
