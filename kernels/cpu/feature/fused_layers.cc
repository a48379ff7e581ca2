#include <algorithm>
#include <memory>
#include <string>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/channels.h"
#include "kernels/cpu/nn/layer_norm_rows.h"
#include "kernels/cpu/workspace.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Fused layers: products combined with the ops before and after them.
namespace millrace::kernels {
namespace {

struct FusedLayerState {
  Workspace work;
  Gemm gemm;
};

// Adds the bias, if any, to every row, and applies relu if requested.
template <typename T>
void finish_layer(const T* bias, bool rectify, int64_t rows, int64_t columns, T* out) {
  for (int64_t r = 0; r < rows; ++r) {
    T* const row = out + r * columns;
    for (int64_t c = 0; c < columns && bias != nullptr; ++c) row[c] += bias[c];
    for (int64_t c = 0; c < columns && rectify; ++c) row[c] = row[c] < T(0) ? T(0) : row[c];
  }
}

struct RepeatedFc {
  ArgIndex x;
  ArgRange w;
  ArgRange bias;
  ArgRange kept;
  ArgIndex out;
};

Status check_repeated_fc(const KernelContext& ctx, const RepeatedFc& args) {
  const Tensor& x = ctx.in(args.x);
  if (x.rank() != 2) return ctx.error("X must be a matrix, found {}", describe(x));
  int64_t width = x.dim(1);
  for (int32_t k = 0; k < args.w.count; ++k) {
    const Tensor& w = ctx.in(args.w, k);
    const Tensor& bias = ctx.in(args.bias, k);
    if (w.rank() != 2 || w.dim(0) != width || w.dtype() != x.dtype() || bias.numel() != w.dim(1) ||
        bias.dtype() != x.dtype())
      return ctx.error("W {} must have {} rows and Bias {} its columns, found {} and {}", k, width,
                       k, describe(w), describe(bias));
    width = w.dim(1);
  }
  return Ok();
}

StatusOr<Kernel> fusion_repeated_fc_relu(const KernelSetup& op) {
  const RepeatedFc args{op.input("X"), op.inputs("W"), op.inputs("Bias"), op.outputs("ReluOut"),
                        op.output("Out")};
  auto state = std::make_shared<FusedLayerState>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_RETURN_IF_ERROR(check_repeated_fc(ctx, args));
    const Tensor& x = ctx.in(args.x);
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const T* from = x.data<T>();
      for (int32_t k = 0; k < args.w.count; ++k) {
        const Tensor& w = ctx.in(args.w, k);
        const GemmShape shape{.rows = x.dim(0), .columns = w.dim(1), .inner = w.dim(0)};
        Tensor* target = k + 1 == args.w.count ? &ctx.out(args.out) : nullptr;
        if (target == nullptr && k < args.kept.count && ctx.has_out(args.kept, k))
          target = &ctx.out(args.kept, k);
        // Two alternating buffers: a layer reads one and writes the other.
        MILLRACE_ASSIGN_OR_RETURN(T* const to,
                                  state->work.output_or_take<T>(target, static_cast<size_t>(k % 2),
                                                                shape.rows * shape.columns));
        MILLRACE_RETURN_IF_ERROR(state->gemm(ctx.device(), shape, from, w.data<T>(), to));
        finish_layer(ctx.in(args.bias, k).data<T>(), /*rectify=*/true, shape.rows, shape.columns,
                     to);
        from = to;
      }
      return Ok();
    });
  });
}

template <typename T>
void square(const T* from, int64_t count, T* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i] * from[i];
}

StatusOr<Kernel> fusion_squared_mat_sub(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex y = op.input("Y");
  const ArgIndex squared_x = op.output("SquaredX");
  const ArgIndex squared_y = op.output("SquaredY");
  const ArgIndex squared_xy = op.output("SquaredXY");
  const ArgIndex out = op.output("Out");
  const float scalar = op.attr<float>("scalar");
  auto state = std::make_shared<FusedLayerState>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& a = ctx.in(x);
    const Tensor& b = ctx.in(y);
    if (a.rank() != 2 || b.rank() != 2 || a.dim(1) != b.dim(0) || a.dtype() != b.dtype())
      return ctx.error("X {} and Y {} cannot be multiplied", describe(a), describe(b));
    const GemmShape shape{.rows = a.dim(0), .columns = b.dim(1), .inner = a.dim(1)};
    const int64_t count = shape.rows * shape.columns;
    return dispatch<FloatTypes>(a.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      Workspace& work = state->work;
      MILLRACE_ASSIGN_OR_RETURN(T* const a2,
                                work.output_or_take<T>(ctx.find_out(squared_x), 0, a.numel()));
      MILLRACE_ASSIGN_OR_RETURN(T* const b2,
                                work.output_or_take<T>(ctx.find_out(squared_y), 1, b.numel()));
      MILLRACE_ASSIGN_OR_RETURN(T* const ab2,
                                work.output_or_take<T>(ctx.find_out(squared_xy), 2, count));
      square(a.data<T>(), a.numel(), a2);
      square(b.data<T>(), b.numel(), b2);
      MILLRACE_RETURN_IF_ERROR(state->gemm(ctx.device(), shape, a.data<T>(), b.data<T>(), ab2));
      square(ab2, count, ab2);
      T* const to = ctx.out(out).data<T>();
      MILLRACE_RETURN_IF_ERROR(state->gemm(ctx.device(), shape, static_cast<const T*>(a2),
                                           static_cast<const T*>(b2), to));
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(scalar) * (ab2[i] - to[i]);
      return Ok();
    });
  });
}

struct FcLayerNorm {
  ArgIndex x, w, y, bias0, scale, bias1, out, mean, variance;
  size_t row_dims = 1;
  size_t norm_dims = 1;
  bool rectify = false;
  double epsilon = 0;
};

// The product of X and W, and the rows that are normalized.
struct FcLayerNormShape {
  GemmShape product;
  LayerNormRows rows;
};

StatusOr<FcLayerNormShape> shape_of_fc_layernorm(const KernelContext& ctx,
                                                 const FcLayerNorm& args) {
  const Tensor& x = ctx.in(args.x);
  const Tensor& w = ctx.in(args.w);
  const Tensor& y = ctx.in(args.y);
  const Tensor& out = ctx.out(args.out);
  FcLayerNormShape s;
  s.product = {.rows = 1, .columns = w.rank() == 2 ? w.dim(1) : -1, .inner = 1};
  for (size_t i = 0; i < x.rank(); ++i)
    (i < args.row_dims ? s.product.rows : s.product.inner) *= x.dim(i);
  if (x.rank() <= args.row_dims || w.rank() != 2 || w.dim(0) != s.product.inner ||
      w.dtype() != x.dtype())
    return ctx.error("X {} and W {} cannot be multiplied", describe(x), describe(w));
  if (y.dims() != out.dims() || y.dtype() != x.dtype())
    return ctx.error("Y must match the result, {}, found {}", describe(out), describe(y));
  for (size_t i = 0; i < out.rank(); ++i)
    (i < args.norm_dims ? s.rows.count : s.rows.width) *= out.dim(i);
  return s;
}

StatusOr<Kernel> fused_fc_elementwise_layernorm(const KernelSetup& op) {
  FcLayerNorm args{op.input("X"),     op.input("W"),     op.input("Y"),
                   op.input("Bias0"), op.input("Scale"), op.input("Bias1"),
                   op.output("Out"),  op.output("Mean"), op.output("Variance")};
  args.row_dims = static_cast<size_t>(op.attr<int32_t>("x_num_col_dims"));
  args.norm_dims = static_cast<size_t>(op.attr<int32_t>("begin_norm_axis"));
  args.rectify = op.attr<std::string>("activation_type") == "relu";
  args.epsilon = op.attr<float>("epsilon");
  auto state = std::make_shared<FusedLayerState>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FcLayerNormShape s, shape_of_fc_layernorm(ctx, args));
    return dispatch<FloatTypes>(ctx.in(args.x).dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      MILLRACE_ASSIGN_OR_RETURN(const T* const bias, channel_values<T>(ctx.find_in(args.bias0),
                                                                       "Bias0", s.product.columns));
      MILLRACE_ASSIGN_OR_RETURN(const T* const scale,
                                channel_values<T>(ctx.find_in(args.scale), "Scale", s.rows.width));
      MILLRACE_ASSIGN_OR_RETURN(const T* const shift,
                                channel_values<T>(ctx.find_in(args.bias1), "Bias1", s.rows.width));
      MILLRACE_ASSIGN_OR_RETURN(T* const means,
                                channel_results<T>(ctx.find_out(args.mean), "Mean", s.rows.count));
      MILLRACE_ASSIGN_OR_RETURN(T* const variances, channel_results<T>(ctx.find_out(args.variance),
                                                                       "Variance", s.rows.count));
      // Y may share memory with the result.
      MILLRACE_ASSIGN_OR_RETURN(T* const sums,
                                state->work.take<T>(0, s.product.rows * s.product.columns));
      MILLRACE_RETURN_IF_ERROR(state->gemm(ctx.device(), s.product, ctx.in(args.x).data<T>(),
                                           ctx.in(args.w).data<T>(), sums));
      finish_layer(bias, args.rectify, s.product.rows, s.product.columns, sums);
      const T* const y = ctx.in(args.y).data<T>();
      for (int64_t i = 0; i < s.product.rows * s.product.columns; ++i) sums[i] += y[i];
      normalise_rows(ctx.device(), s.rows, static_cast<T>(args.epsilon),
                     static_cast<const T*>(sums), scale, shift, ctx.out(args.out).data<T>(), means,
                     variances);
      return Ok();
    });
  });
}

}  // namespace

void add_feature_fused_layers(KernelRegistry& registry) {
  registry.add("fusion_repeated_fc_relu", fusion_repeated_fc_relu);
  registry.add("fusion_squared_mat_sub", fusion_squared_mat_sub);
  registry.add("fused_fc_elementwise_layernorm", fused_fc_elementwise_layernorm);
}

}  // namespace millrace::kernels
