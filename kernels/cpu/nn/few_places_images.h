#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cpu/nn/few_places_loops.h"
#include "kernels/cpu/onednn.h"
#include "kernels/device.h"

namespace millrace::kernels {

/// A convolution, or its gradient with respect to the images, for images of few pixels.
/// oneDNN reads all weights once per image; this class reads them
/// once per eight images. The gradient uses the weights in the layout of the forward pass.
///
/// Images are in blocks of FewPlaces::lanes() channels; weights have the layout
/// FewPlaces::filter_layout().
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
  /// Images past the last full group of eight are computed with a group that is filled up with
  /// zeros.
  /// \param images   src or gradient of dst, by kind
  /// \param result   overwritten, or added to if the spec accumulates; overlaps no operand
  Status run(CpuDevice& device, const float* images, const float* weights, const float* bias,
             float* result) const;

 private:
  /// Copies eight images from image `first` so that the numbers of one pixel and channel of all
  /// eight are contiguous.
  void pack(const float* images, int64_t first, float* to) const;
  /// Adds bias and old content to the sums of two blocks of channels (`pair`), applies the
  /// rectifier and writes them to the result.
  void finish(const float* sums, int64_t first, int64_t pair, const float* bias,
              float* result) const;

  Kind kind_ = Kind::kForward;
  int64_t lanes_ = 0;            // channels of a block
  int64_t count_ = 0;            // images
  int64_t result_blocks_ = 0;    // of lanes_ channels
  int64_t result_stride_ = 0;    // elements between the weights of adjacent blocks of the result
  PlaceSizes sizes_;             // pointers not set
  std::vector<int32_t> starts_;  ///< PlaceSizes::starts
  std::vector<PlaceMeeting> meetings_;  ///< PlaceSizes::meetings
  bool accumulate_ = false;             ///< adds to the old result
  dnn::Rectifier rectifier_ = dnn::Rectifier::kNone;
  float alpha_ = 0;
};

}  // namespace millrace::kernels
