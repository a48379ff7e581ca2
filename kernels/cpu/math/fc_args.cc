#include "kernels/cpu/math/fc_args.h"

namespace millrace::kernels {
namespace fc_args {
namespace {

using dnn::Activation;

StatusOr<Activation> activation_of(const KernelSetup& op) {
  const auto name = op.attr<std::string>("activation_type");
  if (name.empty()) return Activation::kNone;
  if (name == "relu") return Activation::kRelu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_tanh") return Activation::kGeluTanh;
  if (name == "sigmoid") return Activation::kSigmoid;
  if (name == "tanh") return Activation::kTanh;
  return Status(StatusCode::kUnimplemented,
                fmt::format("no kernel for activation_type '{}'", name));
}

}  // namespace
}  // namespace fc_args

StatusOr<FcArgs> read_fc_args(const KernelSetup& op) {
  FcArgs fc{op.input("Input"), op.input("W"), op.input("Bias"), op.input("ResidualData"),
            op.output("Out")};
  fc.row_dims = static_cast<size_t>(op.attr<int32_t>("in_num_col_dims"));
  MILLRACE_ASSIGN_OR_RETURN(fc.activation, fc_args::activation_of(op));
  return fc;
}

StatusOr<FcShape> fc_shape(const KernelContext& ctx, const FcArgs& fc, int64_t padding) {
  const Tensor& x = ctx.in(fc.x);
  const Tensor& w = ctx.in(fc.w);
  const Tensor* const bias = ctx.find_in(fc.bias);
  if (x.rank() <= fc.row_dims || w.rank() != 2)
    return ctx.error("Input {} and W {} cannot be multiplied", describe(x), describe(w));
  FcShape shape{1, 1, w.dim(1) - padding};
  for (size_t i = 0; i < x.rank(); ++i) (i < fc.row_dims ? shape.rows : shape.inner) *= x.dim(i);
  if (shape.inner != w.dim(0) - padding || shape.columns < 0)
    return ctx.error("Input {} and W {} cannot be multiplied", describe(x), describe(w));
  if (bias != nullptr && (bias->numel() != shape.columns || bias->dtype() != x.dtype()))
    return ctx.error("Bias must have {} elements of the type of Input, found {}", shape.columns,
                     describe(*bias));
  const Tensor* const residual = ctx.find_in(fc.residual);
  const Tensor& out = ctx.out(fc.out);
  if (residual != nullptr && (residual->dims() != out.dims() || residual->dtype() != x.dtype()))
    return ctx.error("ResidualData must match the result, {}, found {}", describe(out),
                     describe(*residual));
  return shape;
}

const Tensor* summand_apart(const KernelContext& ctx, const FcArgs& fc) {
  const Tensor* const residual = ctx.find_in(fc.residual);
  return residual == nullptr || residual->raw() == ctx.out(fc.out).raw() ? nullptr : residual;
}
bool accumulates(const KernelContext& ctx, const FcArgs& fc) {
  return ctx.find_in(fc.residual) != nullptr && summand_apart(ctx, fc) == nullptr;
}

dnn::Product fc_product(const KernelContext& ctx, const FcArgs& fc, const FcShape& shape) {
  dnn::Product product;
  product.src = dnn::dense(DType::kFloat32, {shape.rows, shape.inner});
  product.weights = dnn::dense(DType::kFloat32, {shape.inner, shape.columns});
  product.dst = dnn::dense(DType::kFloat32, {shape.rows, shape.columns});
  product.bias = ctx.find_in(fc.bias) != nullptr;
  product.accumulate = accumulates(ctx, fc);
  product.summand = summand_apart(ctx, fc) != nullptr;
  product.activation = fc.activation;
  return product;
}

Status run_fc(const KernelContext& ctx, const FcArgs& fc, const dnn::Primitive& primitive,
              const void* x, const Tensor& weights, const void* bias) {
  const Tensor* const residual = summand_apart(ctx, fc);
  llvm::SmallVector<dnn::Primitive::Binding, 5> bound = {
      {dnn::Arg::kSrc, x}, {dnn::Arg::kWeights, weights}, {dnn::Arg::kDst, ctx.out(fc.out).raw()}};
  if (bias != nullptr) bound.push_back({dnn::Arg::kBias, bias});
  if (residual != nullptr) bound.push_back({dnn::Arg::kSummand, residual->raw()});
  return primitive.run(ctx.device(), bound);
}

}  // namespace millrace::kernels
