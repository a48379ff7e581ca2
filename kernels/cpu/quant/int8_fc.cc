#include <optional>

#include "kernels/cpu/math/fc_args.h"
#include "kernels/cpu/quant/int8_operands.h"
#include "kernels/registry.h"

// int8_fc: fc of 8-bit integers.
namespace millrace::kernels {
namespace int8_fc_kernel {
namespace {

class Int8Fc {
 public:
  Int8Fc(const KernelSetup& op, const FcArgs& fc) : operands_(op, "W", 1), fc_(fc) {}

  Status run(const KernelContext& ctx) {
    MILLRACE_RETURN_IF_ERROR(operands_.update(ctx));
    MILLRACE_ASSIGN_OR_RETURN(const FcShape shape, fc_shape(ctx, fc_, 0));
    const Tensor& x = ctx.in(fc_.x);
    if (x.dtype() != DType::kFloat32)
      return {StatusCode::kUnimplemented, "int8_fc is for f32, found " + describe(x)};
    if (shape.rows == 0 || shape.columns == 0) return Ok();
    if (shape.inner == 0) return ctx.error("Input {} has no elements in a row", describe(x));
    MILLRACE_RETURN_IF_ERROR(read_scales(ctx));
    if (operands_.fits() && scales_) {
      MILLRACE_ASSIGN_OR_RETURN(const bool done, run_integers(ctx, shape));
      if (done) return Ok();
    }
    return run_floats(ctx, shape);
  }

 private:
  // Drops what was made of other weights or scales.
  Status read_scales(const KernelContext& ctx) {
    if (version_ != operands_.version()) {
      version_ = operands_.version();
      scales_ = operands_.scales({});
      primitives_ = {};
      float_products_ = {};
      floats_are_current_ = false;
    }
    const Tensor* const bias = ctx.find_in(fc_.bias);
    return bias == nullptr || !scales_ ? Ok() : unscaled_bias(*bias, *scales_, integer_bias_);
  }

  // nullopt if the library has no such product.
  StatusOr<std::optional<dnn::Primitive>> make(const KernelContext& ctx,
                                               const FcShape& shape) const {
    dnn::Product product = fc_product(ctx, fc_, shape);
    product.src.dtype = rounded_.dtype();
    product.weights.dtype = DType::kInt8;
    product.pack_weights = true;
    product.scales = *scales_;
    return if_implemented(dnn::product(ctx.device(), product));
  }

  // \returns false if floats are needed: for a NaN, or without a primitive
  StatusOr<bool> run_integers(const KernelContext& ctx, const FcShape& shape) {
    MILLRACE_ASSIGN_OR_RETURN(const bool rounded,
                              operands_.round(ctx.device(), ctx.in(fc_.x), rounded_));
    if (!rounded) return false;
    const int64_t key[] = {shape.rows, accumulates(ctx, fc_) ? 1 : 0,
                           rounded_.dtype() == DType::kUint8 ? 1 : 0};
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<dnn::Primitive>* const primitive,
                              primitives_.get(key, [&] { return make(ctx, shape); }));
    if (!*primitive) return false;
    MILLRACE_ASSIGN_OR_RETURN(
        const Tensor* const weights,
        operands_.integers_in(ctx.device(), (*primitive)->layout(dnn::Arg::kWeights)));
    MILLRACE_RETURN_IF_ERROR(run_fc(ctx, fc_, **primitive, rounded_.raw(), *weights,
                                    fc_.bias ? integer_bias_.raw() : nullptr));
    return true;
  }

  Status run_floats(const KernelContext& ctx, const FcShape& shape) {
    MILLRACE_RETURN_IF_ERROR(operands_.round_floats(ctx.in(fc_.x), rounded_));
    if (!floats_are_current_) {
      MILLRACE_RETURN_IF_ERROR(operands_.rounded_weights(ctx.stored_in(fc_.w), {}, float_weights_));
      floats_are_current_ = true;
    }
    const int64_t key[] = {shape.rows, accumulates(ctx, fc_) ? 1 : 0};
    MILLRACE_ASSIGN_OR_RETURN(const dnn::Primitive* const primitive, float_products_.get(key, [&] {
      dnn::Product product = fc_product(ctx, fc_, shape);
      product.pack_weights = true;
      return dnn::product(ctx.device(), product);
    }));
    MILLRACE_RETURN_IF_ERROR(
        bring_to(ctx.device(), float_weights_, primitive->layout(dnn::Arg::kWeights)));
    const Tensor* const bias = ctx.find_in(fc_.bias);
    return run_fc(ctx, fc_, *primitive, rounded_.raw(), float_weights_,
                  bias == nullptr ? nullptr : bias->raw());
  }

  Int8Operands operands_;
  FcArgs fc_;
  int64_t version_ = -1;  // of operands_, when the following were made
  std::optional<std::vector<float>> scales_;
  dnn::ShapeCache<std::optional<dnn::Primitive>> primitives_;
  dnn::ShapeCache<dnn::Primitive> float_products_;
  bool floats_are_current_ = false;
  Tensor float_weights_;
  Tensor rounded_;       // the input, in this run
  Tensor integer_bias_;  // divided by the scales
};

StatusOr<Kernel> int8_fc(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const FcArgs fc, read_fc_args(op));
  const auto state = std::make_shared<Int8Fc>(op, fc);
  return Kernel([state](const KernelContext& ctx) { return state->run(ctx); });
}

}  // namespace
}  // namespace int8_fc_kernel

void add_quant_int8_fc(KernelRegistry& registry) {
  registry.add("int8_fc", int8_fc_kernel::int8_fc);
}

}  // namespace millrace::kernels
