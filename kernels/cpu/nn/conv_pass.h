#pragma once

#include <optional>

#include "kernels/cpu/nn/window.h"
#include "kernels/cpu/onednn.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

/// Attributes of a convolution.
struct ConvAttrs {
  WindowAttrs window;
  int64_t groups = 1;
  bool channels_last = false;
  /// The op is the gradient of a convolution: its Output is what the convolution reads (src), its
  /// Input what the convolution makes (dst).
  bool transposed = false;
};

/// One of the three computations around y = x * w, with the primitives it has been prepared for.
class ConvPass {
 public:
  enum class Kind : uint8_t {
    kForward,          ///< src, weights -> dst
    kBackwardData,     ///< dst, weights -> src
    kBackwardWeights,  ///< src, dst -> weights
  };
  ConvPass(Kind kind, ConvAttrs attrs) : kind_(kind), attrs_(std::move(attrs)) {}

  /// The tensor that kind names as result is written, the others are read. bias: one value for
  /// each channel of dst, in the forward pass only, or null. Errors: shapes or element types that
  /// do not belong together.
  Status run(CpuDevice& device, const Tensor& src, const Tensor& weights, const Tensor& dst,
             const Tensor* bias = nullptr);

 private:
  struct Prepared {
    dnn::Convolution spec;
    std::optional<dnn::Primitive> primitive;  ///< none: the plain kernel
  };
  StatusOr<Prepared> prepare(CpuDevice& device, const Tensor& src, const Tensor& weights,
                             const Tensor& dst, bool bias) const;
  Status run_primitive(CpuDevice& device, const dnn::Primitive& primitive, const Tensor& src,
                       const Tensor& weights, const Tensor& dst, const Tensor* bias) const;
  template <typename T>
  Status run_plain(CpuDevice& device, const dnn::Convolution& spec, const Tensor& src,
                   const Tensor& weights, const Tensor& dst) const;

  Kind kind_;
  ConvAttrs attrs_;
  dnn::ShapeCache<Prepared> cache_;
};

/// Adds bias[c] to every element of channel c. Element types: float, double.
Status add_channel_bias(Tensor& images, const Tensor& bias, bool channels_last);
/// sums[c] = sum over channel c. Element types: float, double.
Status sum_channels(const Tensor& images, Tensor& sums, bool channels_last);

}  // namespace millrace::kernels
