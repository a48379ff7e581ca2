#include <cmath>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/lane_sum.h"
#include "kernels/cpu/nn/channels.h"
#include "kernels/cpu/nn/layer_norm_rows.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace layer_norm_kernels {
namespace {

// Number of rows: the product of the dims before begin_norm_axis.
StatusOr<LayerNormRows> rows_of(const Tensor& x, int64_t axis) {
  if (axis < 0 || axis > static_cast<int64_t>(x.rank())) {
    return KernelContext::error("attribute 'begin_norm_axis' is {}, but X is {}", axis,
                                describe(x));
  }
  LayerNormRows rows;
  for (size_t i = 0; i < x.rank(); ++i)
    (static_cast<int64_t>(i) < axis ? rows.count : rows.width) *= x.dims()[i];
  return rows;
}

struct LayerNormForwardArgs {
  ArgIndex x, scale, bias, y, mean, variance;
  int64_t axis;
  double epsilon;
};

template <typename T>
Status run_forward(const KernelContext& ctx, const LayerNormForwardArgs& args) {
  using C = Compute<T>;
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, args.x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const LayerNormRows rows, rows_of(*in, args.axis));
  const int64_t width = rows.width;
  MILLRACE_ASSIGN_OR_RETURN(const C* const scale,
                            channel_values<C>(ctx.find_in(args.scale), "Scale", width));
  MILLRACE_ASSIGN_OR_RETURN(const C* const bias,
                            channel_values<C>(ctx.find_in(args.bias), "Bias", width));
  MILLRACE_ASSIGN_OR_RETURN(C* const means,
                            channel_results<C>(ctx.find_out(args.mean), "Mean", rows.count));
  MILLRACE_ASSIGN_OR_RETURN(
      C* const variances, channel_results<C>(ctx.find_out(args.variance), "Variance", rows.count));
  const T* const x = in->data<T>();
  T* const y = ctx.out(args.y).data<T>();
  normalise_rows(ctx.device(), rows, static_cast<C>(args.epsilon), x, scale, bias, y, means,
                 variances);
  return Ok();
}

StatusOr<Kernel> layer_norm(const KernelSetup& op) {
  const LayerNormForwardArgs args{op.input("X"),
                                  op.input("Scale"),
                                  op.input("Bias"),
                                  op.output("Y"),
                                  op.output("Mean"),
                                  op.output("Variance"),
                                  op.attr<int64_t>("begin_norm_axis"),
                                  op.attr<float>("epsilon")};
  return Kernel([args](const KernelContext& ctx) -> Status {
    return dispatch<AllFloatTypes>(ctx.in(args.x).dtype(), [&](auto tag) {
      return run_forward<typename decltype(tag)::type>(ctx, args);
    });
  });
}

struct LayerNormBackwardArgs {
  ArgIndex x, scale, mean, variance, dy, dx, dscale, dbias;
  int64_t axis;
  double epsilon;
};

template <typename T>
struct LayerNormBackward {
  using C = Compute<T>;
  const T* x;
  const T* dy;
  const C* scale;
  const C* mean;
  const C* variance;
  T* dx;
  int64_t width;
  C epsilon;
  bool sums;  ///< dscale or dbias is requested
};

// Adds the contribution of one row to dscale and dbias.
template <typename T, typename C>
void add_to_sums(const T* x, const T* dy, int64_t width, C mean, C deviation, C* __restrict dscale,
                 C* __restrict dbias) {
  for (int64_t i = 0; i < width; ++i) {
    const C g = static_cast<C>(dy[i]);
    dscale[i] += g * (static_cast<C>(x[i]) - mean) * deviation;
    dbias[i] += g;
  }
}

template <typename T>
void row_gradient(const LayerNormBackward<T>& b, int64_t r, Compute<T>* dscale, Compute<T>* dbias) {
  using C = Compute<T>;
  const int64_t width = b.width;
  const T* const x = b.x + r * width;
  const T* const dy = b.dy + r * width;
  const C* const scale = b.scale;
  const C mean = b.mean[r];
  const C deviation = C{1} / std::sqrt(b.variance[r] + b.epsilon);
  if (b.sums) add_to_sums(x, dy, width, mean, deviation, dscale, dbias);
  if (b.dx == nullptr) return;
  const auto slope = [dy, scale](int64_t i) {
    return scale == nullptr ? static_cast<C>(dy[i]) : static_cast<C>(dy[i]) * scale[i];
  };
  const C share = C{1} / static_cast<C>(width);
  const C total = share * lane_sum<C>(width, slope);
  const C tilt = share * deviation * deviation * lane_sum<C>(width, [&](int64_t i) {
                   return slope(i) * (static_cast<C>(x[i]) - mean);
                 });
  T* const dx = b.dx + r * width;
  for (int64_t i = 0; i < width; ++i) {
    dx[i] = static_cast<T>(deviation * (slope(i) - total - (static_cast<C>(x[i]) - mean) * tilt));
  }
}

// Each part of the rows has separate sums for dscale and dbias, which are added up at the end.
template <typename T>
Status run_rows(const KernelContext& ctx, const LayerNormBackward<T>& b, int64_t count,
                Compute<T>* dscale, Compute<T>* dbias) {
  using C = Compute<T>;
  const int64_t width = b.width;
  const int64_t parts = std::clamp<int64_t>(count / row_grain(width), 1, ctx.device().threads());
  const int64_t sums = 2 * width;
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory,
                            ctx.device().scratch(static_cast<size_t>(parts * sums) * sizeof(C)));
  C* const partial = reinterpret_cast<C*>(memory);
  std::fill_n(partial, parts * sums, C{0});
  ctx.device().parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      C* const mine = partial + part * sums;
      for (int64_t r = count * part / parts; r < count * (part + 1) / parts; ++r)
        row_gradient(b, r, mine, mine + width);
    }
  });
  for (int64_t part = 1; part < parts; ++part) {
    for (int64_t i = 0; i < sums; ++i) partial[i] += partial[part * sums + i];
  }
  if (dscale != nullptr) std::copy_n(partial, width, dscale);
  if (dbias != nullptr) std::copy_n(partial + width, width, dbias);
  return Ok();
}

template <typename T>
Status run_backward(const KernelContext& ctx, const LayerNormBackwardArgs& args) {
  using C = Compute<T>;
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, args.x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const mean, needed(ctx, args.mean, "Mean"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const variance, needed(ctx, args.variance, "Variance"));
  const Tensor& dy = *ctx.find_in(args.dy);
  MILLRACE_RETURN_IF_ERROR(check_alike(*x, "X", dy, "Y@GRAD"));
  MILLRACE_ASSIGN_OR_RETURN(const LayerNormRows rows, rows_of(*x, args.axis));
  LayerNormBackward<T> b{};
  b.x = x->data<T>();
  b.dy = dy.data<T>();
  b.width = rows.width;
  b.epsilon = static_cast<C>(args.epsilon);
  MILLRACE_ASSIGN_OR_RETURN(b.scale,
                            channel_values<C>(ctx.find_in(args.scale), "Scale", rows.width));
  MILLRACE_ASSIGN_OR_RETURN(b.mean, channel_values<C>(mean, "Mean", rows.count));
  MILLRACE_ASSIGN_OR_RETURN(b.variance, channel_values<C>(variance, "Variance", rows.count));
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, result_like(ctx, args.dx, *x));
  if (dx != nullptr) b.dx = dx->data<T>();
  MILLRACE_ASSIGN_OR_RETURN(
      C* const dscale, channel_results<C>(ctx.find_out(args.dscale), "Scale@GRAD", rows.width));
  MILLRACE_ASSIGN_OR_RETURN(C* const dbias,
                            channel_results<C>(ctx.find_out(args.dbias), "Bias@GRAD", rows.width));
  b.sums = dscale != nullptr || dbias != nullptr;
  return run_rows(ctx, b, rows.count, dscale, dbias);
}

StatusOr<Kernel> layer_norm_grad(const KernelSetup& op) {
  const LayerNormBackwardArgs args{op.input("X"),
                                   op.input("Scale"),
                                   op.input("Mean"),
                                   op.input("Variance"),
                                   op.input("Y@GRAD"),
                                   op.output("X@GRAD"),
                                   op.output("Scale@GRAD"),
                                   op.output("Bias@GRAD"),
                                   op.attr<int64_t>("begin_norm_axis"),
                                   op.attr<float>("epsilon")};
  return Kernel([args](const KernelContext& ctx) -> Status {
    if (ctx.find_in(args.dy) == nullptr)
      return zero_results(ctx, {args.dx, args.dscale, args.dbias});
    return dispatch<AllFloatTypes>(ctx.find_in(args.dy)->dtype(), [&](auto tag) {
      return run_backward<typename decltype(tag)::type>(ctx, args);
    });
  });
}

}  // namespace
}  // namespace layer_norm_kernels

void add_nn_layer_norm(KernelRegistry& registry) {
  using namespace layer_norm_kernels;
  registry.add("layer_norm", layer_norm);
  registry.add("layer_norm_grad", layer_norm_grad);
}

}  // namespace millrace::kernels
