#include <algorithm>
#include <optional>

#include "kernels/cpu/nn/channels.h"
#include "kernels/cpu/nn/conv_pass.h"
#include "kernels/cpu/nn/fused_parts.h"
#include "kernels/cpu/quant/int8_operands.h"
#include "kernels/registry.h"

// int8_conv2d: fused_conv2d of 8-bit integers. The factors of batch_norm become part of the scales.
// With OutScale the result is written as the integers that the next int8_conv2d multiplies, except
// where this one has to compute in floats; so the element type of an input says what it holds.
namespace millrace::kernels {
namespace int8_conv {
namespace {

// Only a result that shares no memory with a residual ever has another type.
Status retype(Tensor& out, DType dtype) {
  const Dims dims(out.dims().begin(), out.dims().end());
  return out.dtype() == dtype ? Ok() : out.resize(dtype, dims);
}

class Int8Conv {
 public:
  explicit Int8Conv(const KernelSetup& op)
      : operands_(op, "Filter", 0),
        input_(op.input("Input")),
        filter_(op.input("Filter")),
        residual_(op.input("ResidualData")),
        out_scale_(op.input("OutScale")),
        output_(op.output("Output")),
        norm_(op),
        attrs_(read_conv_attrs(op)),
        fusion_{rectifier_of(op.attr<std::string>("activation")), op.attr<float>("alpha")},
        layouts_{!attrs_.channels_last, true, nullptr, true},
        floats_(ConvPass::Kind::kForward, attrs_, fusion_) {
    for (const ArgIndex arg : {input_, residual_}) op.accept_layout(arg);
  }

  Status run(const KernelContext& ctx) {
    MILLRACE_RETURN_IF_ERROR(operands_.update(ctx));
    Tensor& out = ctx.out(output_);
    if (out.numel() == 0) return Ok();
    Tensor& input = ctx.stored_in(input_);
    if (input.dtype() != DType::kFloat32 && input.dtype() != DType::kUint8)
      return {StatusCode::kUnimplemented, "int8_conv2d is for f32, found " + describe(input)};
    MILLRACE_RETURN_IF_ERROR(read_factors(ctx));
    MILLRACE_RETURN_IF_ERROR(read_out_scale(ctx));
    if (operands_.fits() && scales_) {
      MILLRACE_ASSIGN_OR_RETURN(const bool done, run_integers(ctx, input, out));
      if (done) return Ok();
    }
    return run_floats(ctx, input, out);
  }

 private:
  [[nodiscard]] Tensor* residual_of(const KernelContext& ctx) const {
    return ctx.find_in(residual_) == nullptr ? nullptr : &ctx.stored_in(residual_);
  }

  // Drops what was made of other weights, scales or factors.
  Status read_factors(const KernelContext& ctx) {
    std::vector<float> factors;
    bias_ = norm_.bias(ctx);
    if (norm_) {
      MILLRACE_RETURN_IF_ERROR(
          norm_.fold(ctx, ctx.stored_in(filter_).dim(0), factors, folded_bias_));
      bias_ = &folded_bias_;
    }
    if (version_ != operands_.version() || factors != factors_) {
      version_ = operands_.version();
      factors_ = std::move(factors);
      scales_ = operands_.scales(factors_);
      primitives_ = {};
      floats_are_current_ = false;
    }
    return bias_ == nullptr || !scales_ ? Ok() : unscaled_bias(*bias_, *scales_, integer_bias_);
  }

  // The scale of the ops that read the result, if it can be written as integers.
  Status read_out_scale(const KernelContext& ctx) {
    float wanted = 0;
    if (out_scale_) {
      MILLRACE_ASSIGN_OR_RETURN(const float* const scale,
                                needed_values<float>(ctx, out_scale_, "OutScale", 1));
      wanted = is_usable_scale(*scale) ? *scale : 0;
    }
    if (wanted != integer_scale_) primitives_ = {};
    integer_scale_ = wanted;
    return Ok();
  }

  // Makes the convolution write uint8, 127 for integer_scale_. Negative numbers, which the
  // rectifier makes 0, and those above the scale are clipped.
  void write_integers(dnn::Convolution& spec) const {
    const float factor = kInt8Bins / integer_scale_;
    for (float& scale : spec.scales) scale *= factor;
    const bool bounded = spec.rectifier == dnn::Rectifier::kRelu6;
    spec.alpha = bounded ? std::min(spec.alpha * factor, kInt8Bins) : kInt8Bins;
    spec.rectifier = dnn::Rectifier::kRelu6;
  }

  // nullopt if the library has no such convolution.
  StatusOr<std::optional<dnn::Primitive>> make(CpuDevice& device, const Tensor& src,
                                               const Tensor& out, bool accumulate) const {
    MILLRACE_ASSIGN_OR_RETURN(dnn::Convolution spec,
                              describe_convolution(attrs_, src, operands_.integers(), out));
    if (cuts_border(spec)) return std::optional<dnn::Primitive>();
    spec.bias = bias_ != nullptr;
    spec.accumulate = accumulate;
    spec.rectifier = fusion_.rectifier;
    spec.alpha = fusion_.alpha;
    spec.scales = *scales_;
    if (out.dtype() == DType::kUint8) write_integers(spec);
    return if_implemented(dnn::convolution(device, spec));
  }

  // The input as integers, in any order of elements; null if a NaN is among its floats.
  StatusOr<const Tensor*> integers_of(CpuDevice& device, Tensor& input) {
    if (input.dtype() == DType::kUint8) return &input;
    if (!channel_blocks(input)) MILLRACE_RETURN_IF_ERROR(bring_to(device, input, nullptr));
    MILLRACE_ASSIGN_OR_RETURN(const bool rounded, operands_.round(device, input, rounded_));
    return rounded ? &rounded_ : nullptr;
  }

  // \returns false if floats are needed: for a NaN, or without a primitive
  StatusOr<bool> run_integers(const KernelContext& ctx, Tensor& input, Tensor& out) {
    CpuDevice& device = ctx.device();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const src, integers_of(device, input));
    if (src == nullptr) return false;
    Tensor* const residual = residual_of(ctx);
    llvm::SmallVector<int64_t, 8> key(input.dims().begin(), input.dims().end());
    key.push_back(residual == nullptr ? 0 : 1);
    key.push_back(src->dtype() == DType::kUint8 ? 1 : 0);
    MILLRACE_RETURN_IF_ERROR(retype(out, integer_scale_ != 0 ? DType::kUint8 : DType::kFloat32));
    MILLRACE_ASSIGN_OR_RETURN(
        const std::optional<dnn::Primitive>* const primitive,
        primitives_.get(key, [&] { return make(device, *src, out, residual != nullptr); }));
    if (!*primitive) return false;
    MILLRACE_ASSIGN_OR_RETURN(
        const Tensor* const weights,
        operands_.integers_in(device, (*primitive)->layout(dnn::Arg::kWeights)));
    const LayoutPtr layout =
        layouts_.free_result ? result_layout(**primitive, dnn::Arg::kDst, out) : nullptr;
    MILLRACE_RETURN_IF_ERROR(place_over(device, residual, layout, out));
    MILLRACE_RETURN_IF_ERROR(
        (*primitive)
            ->run(device, {{dnn::Arg::kSrc, *src},
                           {dnn::Arg::kWeights, *weights},
                           {dnn::Arg::kBias, bias_ == nullptr ? nullptr : integer_bias_.raw()},
                           {dnn::Arg::kDst, out}}));
    return true;
  }

  Status run_floats(const KernelContext& ctx, Tensor& input, Tensor& out) {
    CpuDevice& device = ctx.device();
    MILLRACE_RETURN_IF_ERROR(retype(out, DType::kFloat32));
    MILLRACE_RETURN_IF_ERROR(bring_to(device, input, nullptr));
    MILLRACE_RETURN_IF_ERROR(operands_.round_floats(input, rounded_));
    if (!floats_are_current_) {
      MILLRACE_RETURN_IF_ERROR(bring_to(device, float_filter_, nullptr));
      MILLRACE_RETURN_IF_ERROR(
          operands_.rounded_weights(ctx.stored_in(filter_), factors_, float_filter_));
      floats_.forget_weights();
      floats_are_current_ = true;
    }
    return floats_.run(device, {rounded_, float_filter_, out}, layouts_, bias_, residual_of(ctx));
  }

  Int8Operands operands_;
  ArgIndex input_, filter_, residual_, out_scale_, output_;
  FusedNorm norm_;
  ConvAttrs attrs_;
  ConvPass::Fusion fusion_;
  ConvPass::Layouts layouts_;
  ConvPass floats_;
  int64_t version_ = -1;        // of operands_, when the following were made
  std::vector<float> factors_;  // of batch_norm
  std::optional<std::vector<float>> scales_;
  float integer_scale_ = 0;  // of the result as integers; 0: it is written as floats
  dnn::ShapeCache<std::optional<dnn::Primitive>> primitives_;
  bool floats_are_current_ = false;
  Tensor float_filter_;
  Tensor rounded_;                // the input, in this run
  const Tensor* bias_ = nullptr;  // in this run
  Tensor folded_bias_;            // with batch_norm
  Tensor integer_bias_;           // divided by the scales
};

StatusOr<Kernel> int8_conv2d(const KernelSetup& op) {
  const auto state = std::make_shared<Int8Conv>(op);
  return Kernel([state](const KernelContext& ctx) { return state->run(ctx); });
}

}  // namespace
}  // namespace int8_conv

void add_quant_int8_conv(KernelRegistry& registry) {
  registry.add("int8_conv2d", int8_conv::int8_conv2d);
}

}  // namespace millrace::kernels
