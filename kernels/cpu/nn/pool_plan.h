#pragma once

#include <array>
#include <vector>

#include "kernels/cpu/nn/window.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

/// Attributes of a pooling.
/// pool2d, pool3d and their gradients; ops without an attribute have its default.
struct PoolAttrs {
  WindowAttrs window;     ///< strides, paddings
  Dims kernel;            ///< one entry per spatial dim
  bool max = false;       ///< else averages
  bool global = false;    ///< one window, the whole image
  bool adaptive = false;  ///< kernel is the number of output positions
  bool exclusive = true;  ///< averages do not count padding
  bool channels_last = false;
  /// Windows always have the size of the kernel and move by the strides: maxima of pool2d and
  /// pool3d. The original ignores `adaptive` there, except that Out has that size and there is no
  /// padding.
  bool slides = false;

  /// True if each output position gets a share of the image, whatever the strides are.
  [[nodiscard]] bool shares() const { return adaptive ? !slides : global; }
};
/// Reads those attributes that the op has.
PoolAttrs read_pool_attrs(const KernelSetup& op);

/// The windows along one spatial dim.
struct PoolAxis {
  int64_t size = 1;    ///< extent of the input along the dim
  int64_t places = 1;  ///< output positions
  int64_t stride = 1;  ///< distance of the windows
  int64_t before = 0;  ///< padding before the first element
  int64_t kernel = 1;  ///< size of a window
  /// Output positions whose windows are complete and start at position * stride - before; may be
  /// none.
  int64_t whole_begin = 0;
  int64_t whole_end = 0;
  std::vector<int64_t> begin;  ///< window of each output position, within the image
  std::vector<int64_t> end;
  std::vector<int64_t> count;  ///< number of elements that an average divides by
};

/// Sizes and windows of a pooling; dims are extended to three spatial ones.
struct PoolPlan {
  int64_t batch = 0;  ///< images
  int64_t channels = 0;
  std::array<PoolAxis, 3> axes;  ///< depth, height, width
  bool max = false;
  bool channels_last = false;
  bool one_window = false;  ///< a single output position that sees the whole image

  /// Elements of one channel of an image, and output positions.
  [[nodiscard]] int64_t size() const { return axes[0].size * axes[1].size * axes[2].size; }
  [[nodiscard]] int64_t places() const { return axes[0].places * axes[1].places * axes[2].places; }
};
/// Computed from the dims of X and Out. Errors: they do not match.
/// \param x    [batch, channels, spatial...], or with the channels last
/// \param out  the same with output positions in place of spatial dims
StatusOr<PoolPlan> plan_pool(const PoolAttrs& attrs, llvm::ArrayRef<int64_t> x,
                             llvm::ArrayRef<int64_t> out);

}  // namespace millrace::kernels
