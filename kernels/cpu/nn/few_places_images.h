#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cpu/nn/few_places_loops.h"
#include "kernels/cpu/onednn.h"
#include "kernels/device.h"

namespace millrace::kernels {

/// A convolution, or its gradient of images, over images of few pixels, on processors with vectors
/// of 512 bits. oneDNN goes over all weights once an image; this goes over them once for eight
/// images, and the gradient takes them as the forward pass keeps them.
///
/// Images are in blocks of 16 channels, weights as FewPlaces::kFilterLayout says.
class FewPlacesImages {
 public:
  enum class Kind : uint8_t {
    kForward,  ///< src to dst, with bias, old dst and rectifier as the description says
    kData,     ///< gradient of dst to that of src
  };
  /// nullopt if the convolution is not of this kind or would not gain: f32, two spatial dims, one
  /// group, channels in whole blocks, results of at most 64 pixels, 9 taps, images by the eight.
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
  int64_t result_stride_ = 0;  // elements from the weights of a block of the result to the next
  PlaceSizes sizes_;           // without pointers
  std::vector<int32_t> starts_;
  std::vector<PlaceMeeting> meetings_;
  bool accumulate_ = false;
  dnn::Rectifier rectifier_ = dnn::Rectifier::kNone;
  float alpha_ = 0;
};

}  // namespace millrace::kernels
