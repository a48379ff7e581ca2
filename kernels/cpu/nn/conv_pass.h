#pragma once

#include <optional>

#include "kernels/cpu/layouts.h"
#include "kernels/cpu/nn/few_places.h"
#include "kernels/cpu/nn/few_places_images.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/cpu/onednn.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

/// Attributes of a convolution.
struct ConvAttrs {
  WindowAttrs window;
  int64_t groups = 1;
  bool channels_last = false;
  /// The op is the gradient of a convolution: its Output is the input of the convolution (src), its
  /// Input the result of the convolution (dst).
  bool transposed = false;
  /// Inputs are rounded to bfloat16 where that is faster (dnn::Convolution::bf16_factors).
  bool bf16 = false;
};

/// Reads attributes groups, data_format, mkldnn_data_type and those of the window.
ConvAttrs read_conv_attrs(const KernelSetup& op);

/// Operands of a convolution. The computed one is written; the others are only read, but may be
/// converted to another layout.
struct ConvTensors {
  Tensor& src;
  Tensor& weights;
  Tensor& dst;
};

/// One of the three computations around y = x * w, with its prepared primitives.
class ConvPass {
 public:
  enum class Kind : uint8_t {
    kForward,          ///< src, weights -> dst
    kBackwardData,     ///< dst, weights -> src
    kBackwardWeights,  ///< src, dst -> weights
  };
  /// Allowed layouts of the tensors.
  struct Layouts {
    bool free_result = false;  ///< images: the result may have the library's layout
    bool pack_weights =
        false;               ///< row-major weights are replaced by weights in the library's layout
    LayoutPtr weights_grad;  ///< layout of the result of kBackwardWeights; null: row-major
    /// The weights change only if forget_weights() is called, so that converted weights may be
    /// kept.
    bool keep_weights = false;
  };
  /// Operations fused into the forward pass.
  struct Fusion {
    dnn::Rectifier rectifier = dnn::Rectifier::kNone;
    float alpha = 0.0F;
  };
  ConvPass(Kind kind, ConvAttrs attrs) : kind_(kind), attrs_(std::move(attrs)) {}
  ConvPass(Kind kind, ConvAttrs attrs, const Fusion& fusion)
      : kind_(kind), attrs_(std::move(attrs)), fusion_(fusion) {}

  /// Computes the operand that kind names from the other two, which may have any layout.
  /// \param bias      one value per channel of dst, in the forward pass only, or null
  /// \param residual  another summand of dst before the rectifier, or null; may share memory with
  ///                  dst
  /// Errors: shapes or element types that do not match.
  Status run(CpuDevice& device, const ConvTensors& t, const Layouts& layouts,
             const Tensor* bias = nullptr, Tensor* residual = nullptr);
  /// Must be called when weights of Layouts::keep_weights have changed.
  void forget_weights() { ++weights_version_; }

 private:
  struct KeptWeights {
    Tensor weights;
    int64_t version = -1;
  };
  struct Prepared {
    dnn::Convolution spec;
    std::optional<dnn::Primitive> primitive;  ///< none: the plain kernel
    std::optional<dnn::Primitive>
        faster;  ///< used instead of `primitive`, which still determines the layouts
    /// Weights in the layout of `faster`, which cannot be converted back; null: the weights are
    /// used as passed.
    std::shared_ptr<KeptWeights> kept;
    // Used instead of the primitives if the tensors have the required layouts.
    std::optional<FewPlaces> few_places;
    std::optional<FewPlacesImages> few_places_images;
  };
  StatusOr<Prepared> prepare(CpuDevice& device, const ConvTensors& t, const Layouts& layouts,
                             bool bias, bool residual) const;
  StatusOr<dnn::Primitive> make(CpuDevice& device, const dnn::Convolution& spec) const;
  void add_rounding(CpuDevice& device, Prepared& prepared) const;
  void add_winograd(CpuDevice& device, const Layouts& layouts, Prepared& prepared) const;
  Status run_kept(CpuDevice& device, const Prepared& prepared, const ConvTensors& t,
                  const Layouts& layouts, const Tensor* bias, Tensor* residual) const;
  static StatusOr<bool> run_few_places(CpuDevice& device, const FewPlaces& pass,
                                       const ConvTensors& t, const LayoutPtr& weights_grad);
  StatusOr<bool> run_few_places_images(CpuDevice& device, const Prepared& prepared,
                                       const ConvTensors& t, const Layouts& layouts,
                                       const Tensor* bias, Tensor* residual) const;
  Status run_primitive(CpuDevice& device, const Prepared& prepared, const ConvTensors& t,
                       const Layouts& layouts, const Tensor* bias, Tensor* residual) const;
  Status run_plain(CpuDevice& device, const dnn::Convolution& spec, const ConvTensors& t,
                   const Tensor* bias, Tensor* residual) const;

  Kind kind_;
  ConvAttrs attrs_;
  Fusion fusion_;
  int64_t weights_version_ = 0;
  dnn::ShapeCache<Prepared> cache_;
};

/// Adds bias[c] to all elements of channel c. Element types: float, double.
Status add_channel_bias(Tensor& images, const Tensor& bias, bool channels_last);
/// sums[c] = sum over channel c. Element types: float, double.
Status sum_channels(const Tensor& images, Tensor& sums, bool channels_last);

}  // namespace millrace::kernels
