#pragma once

#include <string>

#include "kernels/kernel.h"

namespace millrace::kernels {

/// Attributes of dropout and of its gradient, for every device.
struct DropoutArgs {
  /// Reads the attributes.
  explicit DropoutArgs(const KernelSetup& op)
      : probability(op.attr<float>("dropout_prob")),
        upscale(op.attr<std::string>("dropout_implementation") == "upscale_in_train"),
        is_test(op.attr<bool>("is_test")) {}
  /// Factor of the kept elements during training.
  [[nodiscard]] float kept_scale() const {
    if (!upscale) return 1;
    return probability >= 1 ? 0
                            : static_cast<float>(1.0 / (1.0 - static_cast<double>(probability)));
  }
  /// Factor of all elements during inference.
  [[nodiscard]] float test_scale() const { return upscale ? 1 : 1 - probability; }

  float probability;  ///< that an element is dropped, attribute dropout_prob
  bool upscale;       ///< kept elements are scaled in training, not in inference
  bool is_test;       ///< inference
};

}  // namespace millrace::kernels
