#pragma once

#include <memory>
#include <optional>

#include "kernels/cpu/layouts.h"
#include "kernels/cpu/nn/few_places.h"
#include "kernels/cpu/nn/few_places_images.h"
#include "kernels/cpu/nn/one_channel.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/cpu/onednn.h"
#include "kernels/kernel.h"

// Convolutions on CPU: the choice between oneDNN, the loops for few positions, Winograd's method
// and the plain products, made once per combination of shapes and layouts and kept.
namespace millrace::kernels {

/// Attributes of a convolution.
struct ConvAttrs {
  WindowAttrs window;          ///< strides, paddings, dilations
  int64_t groups = 1;          ///< input and output channels are divided into that many
  bool channels_last = false;  ///< [batch, spatial..., channels]
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
  Tensor& src;      ///< input of the convolution, or its gradient
  Tensor& weights;  ///< filter, or its gradient
  Tensor& dst;      ///< result of the convolution, or its gradient
};

/// The description of the convolution of operands in row-major order, without fused operations.
/// Element types are those of the operands. Errors: shapes that do not match.
StatusOr<dnn::Convolution> describe_convolution(const ConvAttrs& attrs, const Tensor& src,
                                                const Tensor& weights, const Tensor& dst);
/// True if padding is negative, which cuts off the border; the library does not support that.
bool cuts_border(const dnn::Convolution& spec);
/// Sets the layout of a result, and initializes it with the summand, if there is one, whose layout
/// changes. Errors: kResource, kExecution.
Status place_over(CpuDevice& device, Tensor* residual, const LayoutPtr& layout, Tensor& dst);
/// The layout for the result that the primitive prefers; null if padding would cost the ops that
/// follow more than a conversion.
LayoutPtr result_layout(const dnn::Primitive& primitive, dnn::Arg arg, const Tensor& result);

/// One of the three computations around y = x * w, with its prepared primitives.
/// Images are [batch, channels, spatial...] or, with ConvAttrs::channels_last, [batch, spatial...,
/// channels]; weights are [out channels, in channels / groups, kernel...] in both cases. There are
/// one to three spatial dims. f64 is computed with plain products.
///
/// Thread-safety: one call at a time; the prepared primitives keep state.
class ConvPass {
 public:
  enum class Kind : uint8_t {
    kForward,          ///< src, weights -> dst
    kBackwardData,     ///< dst, weights -> src
    kBackwardWeights,  ///< src, dst -> weights
  };
  /// Allowed layouts of the tensors.
  /// Set by the op's kernel from what the executor allows it (KernelSetup::accept_layout()).
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
    dnn::Rectifier rectifier = dnn::Rectifier::kNone;  ///< applied to the result
    float alpha = 0.0F;  ///< its slope below 0, for those that have one
  };
  /// \param kind  which operand is computed
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
  /// Converted weights and the value of weights_version_ that they were made from; -1: none yet.
  struct KeptWeights {
    Tensor weights;  ///< in the layout of the primitive
    int64_t version = -1;
  };
  /// What is prepared for one combination of dims and types of the operands.
  struct Prepared {
    dnn::Convolution spec;                    ///< dims, windows and fused ops
    std::optional<dnn::Primitive> primitive;  ///< none: the plain kernel
    std::optional<dnn::Primitive>
        faster;  ///< used instead of `primitive`, which still determines the layouts
    /// Weights in the layout of `faster`, which cannot be converted back; null: the weights are
    /// used as passed.
    std::shared_ptr<KeptWeights> kept;
    // Used instead of the primitives if the tensors have the required layouts.
    std::optional<FewPlaces> few_places;
    std::optional<FewPlacesImages> few_places_images;
    std::optional<OneChannel> one_channel;
  };
  /// Chooses the ways to compute for these operands. Called when cache_ has no entry for them.
  StatusOr<Prepared> prepare(CpuDevice& device, const ConvTensors& t, const Layouts& layouts,
                             bool bias, bool residual) const;
  /// The primitive of kind_. Errors: kUnimplemented where the library has none.
  StatusOr<dnn::Primitive> make(CpuDevice& device, const dnn::Convolution& spec) const;
  /// Replaces `faster` by a primitive that rounds to bfloat16, if ConvAttrs::bf16 asks for it and
  /// the processor has one.
  void add_rounding(CpuDevice& device, Prepared& prepared) const;
  /// Sets `faster` where winograd_pays() and the library has the method.
  void add_winograd(CpuDevice& device, const Layouts& layouts, Prepared& prepared) const;
  /// Runs `faster` with weights that are converted at most once per change.
  Status run_kept(CpuDevice& device, const Prepared& prepared, const ConvTensors& t,
                  const Layouts& layouts, const Tensor* bias, Tensor* residual) const;
  /// These return false if the operands do not have the layouts that the loops need; no result is
  /// written then, and the primitive runs instead.
  static StatusOr<bool> run_few_places(CpuDevice& device, const FewPlaces& pass,
                                       const ConvTensors& t, const LayoutPtr& weights_grad);
  static StatusOr<bool> run_one_channel(CpuDevice& device, const OneChannel& pass,
                                        const ConvTensors& t, const LayoutPtr& weights_grad);
  StatusOr<bool> run_few_places_images(CpuDevice& device, const Prepared& prepared,
                                       const ConvTensors& t, const Layouts& layouts,
                                       const Tensor* bias, Tensor* residual) const;
  /// Brings the operands to the layouts of the primitive as far as `layouts` permits, and runs it.
  Status run_primitive(CpuDevice& device, const Prepared& prepared, const ConvTensors& t,
                       const Layouts& layouts, const Tensor* bias, Tensor* residual) const;
  /// Brings all operands to row-major order and multiplies matrices of copied windows
  /// (plain_conv.h).
  Status run_plain(CpuDevice& device, const dnn::Convolution& spec, const ConvTensors& t,
                   const Tensor* bias, Tensor* residual) const;

  Kind kind_;        ///< forward, or one of the two gradients
  ConvAttrs attrs_;  ///< strides, paddings, groups
  Fusion fusion_;    ///< what is applied to the result
  /// Counts forget_weights(); compared with KeptWeights::version.
  int64_t weights_version_ = 0;
  dnn::ShapeCache<Prepared> cache_;  ///< by the dims of the operands
  /// The same without a rectifier, for operands that may give NaN; null until there are some.
  std::shared_ptr<ConvPass> unbounded_;
};

/// Adds bias[c] to all elements of channel c. Element types: float, double.
/// Images are row-major. Errors: bias has another type, or another number of elements than
/// channels.
Status add_channel_bias(Tensor& images, const Tensor& bias, bool channels_last);
/// sums[c] = sum over channel c. Element types: float, double.
Status sum_channels(const Tensor& images, Tensor& sums, bool channels_last);

}  // namespace millrace::kernels
