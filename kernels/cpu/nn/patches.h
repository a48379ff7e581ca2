#pragma once

#include <string>

#include "kernels/cpu/nn/window.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

/// The windows of an image [channels, height, width].
/// Arrays have an entry for height and one for width. An element of the patch is a channel and a
/// position within the window, in the order [channels, kernel height, kernel width].
struct Patches {
  int64_t channels = 0;     ///< of the image
  int64_t size[2] = {};     ///< of the image
  int64_t kernel[2] = {};   ///< size of a window
  int64_t places[2] = {};   ///< window positions along each dim
  int64_t strides[2] = {};  ///< distance of the windows
  int64_t dilations[2] = {1, 1};
  int64_t before[2] = {};  ///< padding on top and on the left

  /// Number of elements of the image.
  [[nodiscard]] int64_t image() const { return channels * size[0] * size[1]; }
  /// Number of elements of a window.
  [[nodiscard]] int64_t patch() const { return channels * kernel[0] * kernel[1]; }
  /// Number of windows.
  [[nodiscard]] int64_t count() const { return places[0] * places[1]; }

  /// Calls body(position, element of the patch, element of the image, or -1 in the padding); the
  /// elements of the patch are the outer loops.
  template <typename Body>
  void for_all(Body&& body) const {
    int64_t element = 0;
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t kh = 0; kh < kernel[0]; ++kh) {
        for (int64_t kw = 0; kw < kernel[1]; ++kw, ++element) {
          for (int64_t h = 0; h < places[0]; ++h) {
            const int64_t y = h * strides[0] + kh * dilations[0] - before[0];
            for (int64_t w = 0; w < places[1]; ++w) {
              const int64_t x = w * strides[1] + kw * dilations[1] - before[1];
              const bool inside = y >= 0 && y < size[0] && x >= 0 && x < size[1];
              body(h * places[1] + w, element, inside ? (c * size[0] + y) * size[1] + x : -1);
            }
          }
        }
      }
    }
  }
};

/// Reads strides, dilations and paddings (top, left, bottom, right, or two values for both sides)
/// once.
struct PatchAttrs {
  Dims kernel;  ///< height and width of a window
  Dims strides;
  Dims dilations;
  Dims paddings;  ///< two or four numbers
};
/// \param kernel_attr  attribute with the size of the window: "kernels" or "kernel_sizes"
PatchAttrs read_patch_attrs(const KernelSetup& op, const char* kernel_attr);
/// Errors: lists of the wrong length, numbers out of range, an image without any position for the
/// window; x must have rank 4.
StatusOr<Patches> patches_of(const PatchAttrs& attrs, const Tensor& x);

}  // namespace millrace::kernels
