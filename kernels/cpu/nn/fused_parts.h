#pragma once

#include <string>
#include <vector>

#include "framework/tensor/tensor.h"
#include "kernels/cpu/onednn.h"
#include "kernels/kernel.h"

// What fused convolutions (fused_conv2d, int8_conv2d) do with the ops that passes fused into them.
namespace millrace::kernels {

/// The final function by the name of its op; none if the name is empty.
dnn::Rectifier rectifier_of(const std::string& name);

/// A bias and a batch_norm with given statistics, as one factor and one summand for each channel.
class FusedNorm {
 public:
  explicit FusedNorm(const KernelSetup& op);

  /// True if there is a batch_norm.
  explicit operator bool() const { return static_cast<bool>(mean_); }
  /// The bias of the convolution; null without one.
  [[nodiscard]] const Tensor* bias(const KernelContext& ctx) const { return ctx.find_in(bias_); }
  /// Computes both from the inputs of this run; only if there is a batch_norm.
  /// \param factors  gets one entry for each of the n channels
  /// \param sum      gets the summands, f32
  /// Errors: inputs of other types or sizes.
  Status fold(const KernelContext& ctx, int64_t n, std::vector<float>& factors, Tensor& sum) const;

 private:
  ArgIndex bias_, scale_, shift_, mean_, variance_;
  float epsilon_;  ///< added to the variance
};

}  // namespace millrace::kernels
