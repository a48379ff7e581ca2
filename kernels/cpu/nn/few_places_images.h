#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cpu/nn/few_places_loops.h"
#include "kernels/cpu/onednn.h"
#include "kernels/device.h"

namespace millrace::kernels {

/// A convolution, or its gradient with respect to the images, for images of few pixels on
/// processors with 512-bit vectors. oneDNN reads all weights once per image; this class reads them
/// once per eight images. The gradient uses the weights in the layout of the forward pass.
///
/// Images are in blocks of 16 channels; weights have the layout FewPlaces::kFilterLayout.
class FewPlacesImages {
 public:
  enum class Kind : uint8_t {
    kForward,  ///< src to dst, with bias, old dst and rectifier as described in the spec
    kData,     ///< gradient of dst to that of src
  };
  /// nullopt if the convolution does not qualify or would not be faster. It must have f32, two
  /// spatial dims, one group, channels in whole blocks, results of at most 64 pixels, at most 9
  /// taps, and mostly full groups of eight images.
  static std::optional<FewPlacesImages> plan(const dnn::Convolution& spec, Kind kind);

  /// bias: may be null. Uses scratch slot 0 of the device. Errors: kResource.
  Status run(CpuDevice& device, const float* images, const float* weights, const float* bias,
             float* result) const;

 private:
  void pack(const float* images, int64_t first, float* to) const;
  void finish(const float* sums, int64_t first, int64_t pair, const float* bias,
              float* result) const;

  Kind kind_ = Kind::kForward;
  int64_t count_ = 0;          // images
  int64_t result_blocks_ = 0;  // of 16 channels
  int64_t result_stride_ = 0;  // elements between the weights of adjacent blocks of the result
  PlaceSizes sizes_;           // pointers not set
  std::vector<int32_t> starts_;
  std::vector<PlaceMeeting> meetings_;
  bool accumulate_ = false;
  dnn::Rectifier rectifier_ = dnn::Rectifier::kNone;
  float alpha_ = 0;
};

}  // namespace millrace::kernels
