#pragma once

#include <array>
#include <vector>

#include "framework/base/status.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

// Interpolation ops (nearest_interp, bilinear_interp, trilinear_interp, bicubic_interp,
// linear_interp and their v2 forms) as weighted sums over a few input elements per axis. The
// weights depend on sizes only and are computed once per call.
enum class InterpMethod : uint8_t { kNearest, kLinear, kCubic };

/// Attributes of an interpolation, and the arguments with sizes given at run time.
/// The sizes of a call are, by priority: SizeTensor (a list), OutSize, the factors (Scale or the
/// attribute), the size attributes.
struct InterpAttrs {
  InterpMethod method = InterpMethod::kNearest;
  size_t spatial = 2;         ///< number of spatial dims, 1 to 3
  std::vector<float> scale;   ///< one, or one per spatial dim; empty: use the sizes
  Dims sizes;                 ///< from the attributes, per spatial dim
  bool align_corners = true;  ///< first and last elements of both sizes coincide
  bool centres = false;  ///< positions refer to pixel centres: align_mode 0 without align_corners
  bool second = false;   ///< a v2 op: a given scale, not the sizes, determines the distance
  bool channels_last = false;
  ArgIndex out_size;      ///< OutSize
  ArgRange size_tensors;  ///< SizeTensor
  ArgIndex scale_tensor;  ///< Scale
};
/// Reads method, sizes and layout of an interpolation op or of its gradient.
InterpAttrs read_interp_attrs(const KernelSetup& op);

/// The input elements that contribute to each element i of an output line: `taps` of them, each
/// with a weight.
/// An output element i of the axis is the sum over k of weight[i * taps + k] * x[index[i * taps +
/// k]].
struct InterpAxis {
  int64_t in = 1;              ///< size of the input along the axis
  int64_t out = 1;             ///< size of the result along the axis
  int64_t taps = 1;            ///< 1 for nearest, 2 for linear, 4 for cubic
  std::vector<int64_t> index;  ///< out * taps
  std::vector<double> weight;  ///< out * taps
};

/// Three axes; with fewer spatial dims, the leading ones have size 1.
struct InterpPlan {
  int64_t parts = 0;               ///< planes, or images if channels come last
  int64_t lanes = 1;               ///< elements per pixel
  std::array<InterpAxis, 3> axes;  ///< depth, height, width

  /// True if every element of the result is a copy of an input element.
  [[nodiscard]] bool copies() const { return axes[0].taps * axes[1].taps * axes[2].taps == 1; }
  /// Elements of one part of the input and of the result.
  [[nodiscard]] int64_t in() const { return axes[0].in * axes[1].in * axes[2].in * lanes; }
  [[nodiscard]] int64_t out() const { return axes[0].out * axes[1].out * axes[2].out * lanes; }
};

/// Reads sizes and factors of this call. Errors: a rank or size that does not fit.
/// \param x  [batch, channels, spatial...], or with the channels last
StatusOr<InterpPlan> plan_interp(const KernelContext& ctx, const InterpAttrs& attrs,
                                 const Tensor& x);
/// Dims of the result.
Dims interp_dims(const InterpPlan& plan, const InterpAttrs& attrs, const Tensor& x);

}  // namespace millrace::kernels
