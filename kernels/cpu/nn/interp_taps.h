#pragma once

#include <array>
#include <vector>

#include "framework/base/status.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

enum class InterpMethod : uint8_t { kNearest, kLinear, kCubic };

/// Attributes of an interpolation, and the arguments with sizes given at run time.
struct InterpAttrs {
  InterpMethod method = InterpMethod::kNearest;
  size_t spatial = 2;
  std::vector<float> scale;  ///< one, or one per spatial dim; empty: use the sizes
  Dims sizes;                ///< from the attributes, per spatial dim
  bool align_corners = true;
  bool centres = false;  ///< positions refer to pixel centres: align_mode 0 without align_corners
  bool second = false;   ///< a v2 op: a given scale, not the sizes, determines the distance
  bool channels_last = false;
  ArgIndex out_size;
  ArgRange size_tensors;
  ArgIndex scale_tensor;
};
InterpAttrs read_interp_attrs(const KernelSetup& op);

/// The input elements that contribute to each element i of an output line: `taps` of them, each
/// with a weight.
struct InterpAxis {
  int64_t in = 1;
  int64_t out = 1;
  int64_t taps = 1;
  std::vector<int64_t> index;  ///< out * taps
  std::vector<double> weight;  ///< out * taps
};

/// Three axes; with fewer spatial dims, the leading ones have size 1.
struct InterpPlan {
  int64_t parts = 0;  ///< planes, or images if channels come last
  int64_t lanes = 1;  ///< elements per pixel
  std::array<InterpAxis, 3> axes;

  /// True if every element of the result is a copy of an input element.
  [[nodiscard]] bool copies() const { return axes[0].taps * axes[1].taps * axes[2].taps == 1; }
  [[nodiscard]] int64_t in() const { return axes[0].in * axes[1].in * axes[2].in * lanes; }
  [[nodiscard]] int64_t out() const { return axes[0].out * axes[1].out * axes[2].out * lanes; }
};

/// Reads sizes and factors of this call. Errors: a rank or size that does not fit.
StatusOr<InterpPlan> plan_interp(const KernelContext& ctx, const InterpAttrs& attrs,
                                 const Tensor& x);
/// Dims of the result.
Dims interp_dims(const InterpPlan& plan, const InterpAttrs& attrs, const Tensor& x);

}  // namespace millrace::kernels
