#include <algorithm>

#include <Eigen/Core>

#include "framework/program.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/layouts.h"
#include "kernels/cpu/math/fc_args.h"
#include "kernels/cpu/matrix_product.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace fc_kernels {
namespace {

using dnn::Activation;

template <typename C>
C activated(Activation activation, C x) {
  switch (activation) {
    case Activation::kRelu:
      return x > C{0} ? x : C{0};
    case Activation::kGelu:
      return x * C{0.5} * (C{1} + vmath::erf(x * static_cast<C>(0.70710678118654752)));
    case Activation::kGeluTanh: {
      const C inner = static_cast<C>(0.79788456080286536) * (x + C(0.044715) * x * x * x);
      return x * C{0.5} * (C{1} + vmath::tanh(inner));
    }
    case Activation::kSigmoid:
      return vmath::sigmoid(x);
    case Activation::kTanh:
      return vmath::tanh(x);
    case Activation::kNone:
      break;
  }
  return x;
}

struct Fc : FcArgs {
  int64_t padding = 0;       ///< padding rows and columns of W
  bool bf16 = false;         ///< float factors are rounded to bfloat16
  bool keep_packed = false;  ///< W may be kept in the library's layout
};

StatusOr<FcShape> shape_of(const KernelContext& ctx, const Fc& fc) {
  const Tensor& x = ctx.in(fc.x);
  const Tensor& w = ctx.in(fc.w);
  if (x.dtype() != w.dtype())
    return ctx.error("Input {} and W {} cannot be multiplied", describe(x), describe(w));
  return fc_shape(ctx, fc, fc.padding);
}

// Bias, summand and activation for the element types for which the library does not fuse them.
template <typename T>
void finish(const KernelContext& ctx, const Fc& fc, int64_t columns, T* out) {
  using C = Compute<T>;
  const Tensor* const bias = ctx.find_in(fc.bias);
  const Tensor* const residual = summand_apart(ctx, fc);
  const int64_t count = ctx.out(fc.out).numel();
  for (int64_t i = 0; i < count; ++i) {
    C sum = static_cast<C>(out[i]);
    if (bias != nullptr) sum += static_cast<C>(bias->data<T>()[i % columns]);
    if (residual != nullptr) sum += static_cast<C>(residual->data<T>()[i]);
    out[i] = static_cast<T>(activated(fc.activation, sum));
  }
}

// With so few weights, calling a library takes longer than the product: 0.4 us instead of 0.1 us
// for 16 x 8 by 8 x 8. The number of rows is ignored, so that a row has the same result in every
// batch.
constexpr int64_t kFewWeights = 256;
constexpr int kWidth = 8;  // columns per iteration: one register

// One block of columns, kWidth or (kDynamic) `width` of them.
template <int kColumns>
void multiply_block(const FcShape& s, int64_t width, bool rectify, const float* x, const float* w,
                    const float* bias, float* out) {
  using Block = Eigen::Array<float, kColumns, 1, Eigen::ColMajor, kWidth>;
  const Block start =
      bias == nullptr ? Block(Block::Zero(width)) : Block(Eigen::Map<const Block>(bias, width));
  for (int64_t row = 0; row < s.rows; ++row) {
    Block sum = start;
    for (int64_t k = 0; k < s.inner; ++k)
      sum += x[row * s.inner + k] * Eigen::Map<const Block>(w + k * s.columns, width);
    if (rectify) sum = (sum > 0.0F).select(sum, 0.0F);  // as activated(), for NaN too
    Eigen::Map<Block>(out + row * s.columns, width) = sum;
  }
}

void run_few(const KernelContext& ctx, const Fc& fc, const FcShape& s) {
  const float* const x = ctx.in(fc.x).data<float>();
  const float* const w = ctx.in(fc.w).data<float>();
  const Tensor* const bias = ctx.find_in(fc.bias);
  float* const out = ctx.out(fc.out).data<float>();
  const bool rectify = fc.activation == Activation::kRelu;
  for (int64_t at = 0; at < s.columns; at += kWidth) {
    const float* const own_bias = bias == nullptr ? nullptr : bias->data<float>() + at;
    const int64_t width = std::min<int64_t>(kWidth, s.columns - at);
    const auto multiply = width == kWidth ? multiply_block<kWidth> : multiply_block<Eigen::Dynamic>;
    multiply(s, width, rectify, x, w + at, own_bias, out + at);
  }
  if (rectify || fc.activation == Activation::kNone) return;
  for (int64_t i = 0; i < s.rows * s.columns; ++i) out[i] = activated(fc.activation, out[i]);
}

using Products = dnn::ShapeCache<dnn::Primitive>;

Status run_float(const KernelContext& ctx, const Fc& fc, const FcShape& s, Products& products) {
  const Tensor* const bias = ctx.find_in(fc.bias);
  const int64_t key[] = {s.rows, s.inner, s.columns, accumulates(ctx, fc) ? 1 : 0};
  MILLRACE_ASSIGN_OR_RETURN(const dnn::Primitive* const primitive, products.get(key, [&] {
    dnn::Product product = fc_product(ctx, fc, s);
    product.pack_weights = fc.keep_packed;
    product.bf16_factors = fc.bf16;
    StatusOr<dnn::Primitive> made = dnn::product(ctx.device(), product);
    if (made.ok() || !fc.bf16) return made;
    product.bf16_factors = false;
    return dnn::product(ctx.device(), product);
  }));
  if (fc.keep_packed && ctx.in(fc.w).layout() == nullptr)
    MILLRACE_RETURN_IF_ERROR(
        bring_to(ctx.device(), ctx.stored_in(fc.w), primitive->layout(dnn::Arg::kWeights)));
  return run_fc(ctx, fc, *primitive, ctx.in(fc.x).raw(), ctx.in(fc.w),
                bias == nullptr ? nullptr : bias->raw());
}

Status run_other(const KernelContext& ctx, const Fc& fc, const FcShape& s,
                 const MatrixProduct& product) {
  const Tensor& x = ctx.in(fc.x);
  Tensor& out = ctx.out(fc.out);
  MILLRACE_RETURN_IF_ERROR(product.run(ctx.device(), x.dtype(),
                                       {s.rows, s.inner, s.columns, false, false, {}}, x.raw(),
                                       ctx.in(fc.w).raw(), out.raw(), accumulates(ctx, fc)));
  return dispatch<AllFloatTypes>(x.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    finish<T>(ctx, fc, s.columns, out.data<T>());
    return Ok();
  });
}

Status run_padded(const KernelContext& ctx, const Fc& fc, const FcShape& s, Gemm& gemm) {
  const Tensor& x = ctx.in(fc.x);
  return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    Tensor& out = ctx.out(fc.out);
    MILLRACE_RETURN_IF_ERROR(gemm(ctx.device(),
                                  {.rows = s.rows,
                                   .columns = s.columns,
                                   .inner = s.inner,
                                   .accumulate = accumulates(ctx, fc),
                                   .b_stride = s.columns + fc.padding},
                                  x.data<T>(), ctx.in(fc.w).data<T>(), out.data<T>()));
    finish<T>(ctx, fc, s.columns, out.data<T>());
    return Ok();
  });
}

// True if no op other than fc reads the weights and no op writes them. Other ops would have to
// convert them back to row-major order in every run.
bool may_keep_packed(const KernelSetup& op, ArgIndex w) {
  if (!op.is_constant(w)) return false;
  const llvm::StringRef name = op.op().first_input("W");
  for (const Block& block : op.op().program().blocks()) {
    for (const Op* const reader : block.readers_of(name)) {
      if (reader->type() != "fc" || reader->first_input("W") != name) return false;
    }
  }
  return true;
}

StatusOr<Kernel> fc(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(FcArgs args, read_fc_args(op));
  Fc fc{std::move(args)};
  fc.padding = op.attr<bool>("padding_weights") ? 4 : 0;
  fc.bf16 = wants_bf16(op);
  // Weights packed as bfloat16 would lose precision.
  fc.keep_packed = fc.padding == 0 && !fc.bf16 && may_keep_packed(op, fc.w);
  if (fc.keep_packed) op.accept_layout(fc.w);
  return Kernel([fc, products = std::make_shared<Products>(), gemm = std::make_shared<Gemm>(),
                 product = MatrixProduct()](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FcShape shape, shape_of(ctx, fc));
    if (fc.padding > 0) return run_padded(ctx, fc, shape, *gemm);
    const bool is_float = ctx.in(fc.x).dtype() == DType::kFloat32;
    const bool is_plain = ctx.in(fc.w).layout() == nullptr && ctx.find_in(fc.residual) == nullptr;
    if (is_float && !fc.bf16 && is_plain && shape.inner * shape.columns <= kFewWeights) {
      run_few(ctx, fc, shape);
      return Ok();
    }
    if (is_float && !shape.empty()) return run_float(ctx, fc, shape, *products);
    MILLRACE_RETURN_IF_ERROR(bring_to_plain(ctx, {fc.w}));
    return run_other(ctx, fc, shape, product);
  });
}

}  // namespace
}  // namespace fc_kernels

/// fc: a product with its bias and activation.
void add_math_fc(KernelRegistry& registry) {
  registry.add("fc", fc_kernels::fc);
}

}  // namespace millrace::kernels
