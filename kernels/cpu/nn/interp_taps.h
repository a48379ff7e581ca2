#pragma once

#include <array>
#include <vector>

#include "framework/base/status.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

enum class InterpMethod : uint8_t { kNearest, kLinear, kCubic };

/// Attributes of an interpolation and where it finds sizes given at run time.
struct InterpAttrs {
  InterpMethod method = InterpMethod::kNearest;
  size_t spatial = 2;
  std::vector<float> scale;  ///< one, or one for each spatial dim; empty: sizes decide
  Dims sizes;                ///< of the attributes, by spatial dim
  bool align_corners = true;
  bool centres = false;  ///< pixels are squares: align_mode 0 without align_corners
  bool second = false;   ///< a v2 op: a given scale, not the sizes, sets the distance
  bool channels_last = false;
  ArgIndex out_size;
  ArgRange size_tensors;
  ArgIndex scale_tensor;
};
InterpAttrs read_interp_attrs(const KernelSetup& op);

/// Which elements of an input line make element i of an output line: taps of them, each with a
/// weight.
struct InterpAxis {
  int64_t in = 1;
  int64_t out = 1;
  int64_t taps = 1;
  std::vector<int64_t> index;  ///< out * taps
  std::vector<double> weight;  ///< out * taps
};

/// Three axes, the leading ones trivial where there are fewer spatial dims.
struct InterpPlan {
  int64_t parts = 0;  ///< planes, or images where channels come last
  int64_t lanes = 1;  ///< elements of a pixel
  std::array<InterpAxis, 3> axes;

  /// True if every element of the result is one of the input.
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
