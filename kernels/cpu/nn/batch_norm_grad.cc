#include <cmath>
#include <optional>
#include <type_traits>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/nest.h"
#include "kernels/cpu/nn/batch_norm_kernels.h"
#include "kernels/cpu/nn/norm_columns.h"
#include "kernels/cpu/wide_loops.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace batch_norm_grad {
namespace {

struct BatchNormGradArgs {
  BatchNormGradArgs(const KernelSetup& op, bool fused)
      : x(op.input("X")),
        y(fused ? op.input("Y") : ArgIndex{}),
        dy(op.input("Y@GRAD")),
        more(op.input("MoreY@GRAD")),
        scale(op.input("Scale")),
        saved_mean(op.input("SavedMean")),
        saved_variance(op.input("SavedVariance")),
        mean(op.input(op.input("Mean") ? "Mean" : "MeanOut")),
        variance(op.input(op.input("Variance") ? "Variance" : "VarianceOut")),
        dx(op.output("X@GRAD")),
        dz(op.output("Z@GRAD")),
        dscale(op.output("Scale@GRAD")),
        dbias(op.output("Bias@GRAD")) {}
  ArgIndex x, y, dy, more, scale, saved_mean, saved_variance, mean, variance;
  ArgIndex dx, dz, dscale, dbias;
};

struct BatchNormGradAttrs {
  double epsilon = 0;
  bool channels_last = false;
  bool global = false;
};

// Gradients of channels with at most one element, which the forward op copied.
template <typename T>
void pass_through(const BatchNormGrad<T>& g, int64_t channels, int64_t of_channel) {
  if (g.dx != nullptr && g.dx != g.dy) std::copy_n(g.dy, channels * of_channel, g.dx);
  std::fill_n(g.dscale, channels, Compute<T>{0});
  std::fill_n(g.dbias, channels, Compute<T>{0});
}

// The statistics that the forward op used; with the running variance, the result is stored in
// `deviation`.
template <typename T>
Status find_statistics(const KernelContext& ctx, const BatchNormGradArgs& args,
                       const BatchNormGradAttrs& attrs, BatchNormGrad<T>& g, Compute<T>* deviation,
                       int64_t n) {
  using C = Compute<T>;
  const char* const mean_slot = attrs.global ? "Mean" : "SavedMean";
  const char* const variance_slot = attrs.global ? "Variance" : "SavedVariance";
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const mean,
                            needed(ctx, attrs.global ? args.mean : args.saved_mean, mean_slot));
  MILLRACE_ASSIGN_OR_RETURN(
      const Tensor* const variance,
      needed(ctx, attrs.global ? args.variance : args.saved_variance, variance_slot));
  MILLRACE_ASSIGN_OR_RETURN(g.mean, channel_values<C>(mean, mean_slot, n));
  MILLRACE_ASSIGN_OR_RETURN(g.deviation, channel_values<C>(variance, variance_slot, n));
  if (!attrs.global) return Ok();
  for (int64_t c = 0; c < n; ++c)
    deviation[c] = C{1} / std::sqrt(g.deviation[c] + static_cast<C>(attrs.epsilon));
  g.deviation = deviation;
  return Ok();
}

// Blocks of channels that all images have; otherwise they are row-major.
template <typename T>
StatusOr<std::optional<ChannelBlocks>> follow_grad_blocks(const KernelContext& ctx,
                                                          const BatchNormGradArgs& args,
                                                          const BatchNormGradAttrs& attrs) {
  const Tensor& x = ctx.in(args.x);
  std::optional<ChannelBlocks> blocks;
  if (std::is_same_v<T, float> && !attrs.channels_last) blocks = channel_blocks(x);
  if (blocks && blocks->outer * blocks->inner < 2) blocks.reset();
  MILLRACE_RETURN_IF_ERROR(bring_to(ctx, args.x, blocks ? x.layout() : nullptr));
  for (const ArgIndex arg : {args.y, args.dy, args.more})
    MILLRACE_RETURN_IF_ERROR(bring_to(ctx, arg, x.layout()));
  return blocks;
}

// Additional operands of the fused op; null where there is none.
template <typename T>
struct Fused {
  const T* y = nullptr;     ///< result of the rectifier
  const T* more = nullptr;  ///< second summand of the incoming gradient
  T* dz = nullptr;
};

// For images in blocks of channels.
void run_blocks(CpuDevice& device, const BatchNormGrad<float>& g, const Fused<float>& fused,
                const ChannelBlocks& l) {
  NormBackward norm;
  norm.l = l;
  norm.x = g.x;
  norm.y = fused.y;
  norm.dy = g.dy;
  norm.more = fused.more;
  norm.scale = g.scale;
  norm.mean = g.mean;
  norm.deviation = g.deviation;
  norm.dz = fused.dz;
  norm.dx = g.dx;
  norm.dscale = g.dscale;
  norm.dbias = g.dbias;
  norm.constant_statistics = g.constant_statistics;
  const WideLoops* const wide = wide_loops();
  const NormBackwardLoop loop = wide != nullptr ? wide->norm_backward : detail::norm_backward;
  for_norm_columns(device, l, [&](int64_t begin, int64_t end) { loop(norm, begin, end); });
}

// The incoming gradient of the normalization, written to `to`, which may share memory with an
// operand.
template <typename T>
void add_and_mask(CpuDevice& device, const Fused<T>& fused, const T* dy, int64_t count, T* to) {
  using C = Compute<T>;
  device.parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      C value = static_cast<C>(dy[i]);
      if (fused.more != nullptr) value += static_cast<C>(fused.more[i]);
      to[i] =
          static_cast<T>(fused.y != nullptr && !(static_cast<C>(fused.y[i]) > C{0}) ? C{0} : value);
    }
  });
}

// An image output with the dims and layout of X; null if the op lacks it.
StatusOr<Tensor*> image_result(const KernelContext& ctx, ArgIndex arg, const Tensor& x) {
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const out, result_like(ctx, arg, x));
  if (out == nullptr) return out;
  const Dims dims(x.dims().begin(), x.dims().end());
  MILLRACE_RETURN_IF_ERROR(out->resize(x.dtype(), dims, x.layout()));
  return out;
}

template <typename T>
Status run_gradient(const KernelContext& ctx, const BatchNormGradArgs& args,
                    const BatchNormGradAttrs& attrs) {
  using C = Compute<T>;
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, args.x, "X"));
  const Tensor& dy = *ctx.find_in(args.dy);
  MILLRACE_RETURN_IF_ERROR(check_alike(*x, "X", dy, "Y@GRAD"));
  const Tensor* const y = ctx.find_in(args.y);
  const Tensor* const more = ctx.find_in(args.more);
  if (y != nullptr) MILLRACE_RETURN_IF_ERROR(check_alike(*x, "X", *y, "Y"));
  if (more != nullptr) MILLRACE_RETURN_IF_ERROR(check_alike(*x, "X", *more, "MoreY@GRAD"));
  if (x->rank() < 2) return ctx.error("X must have at least 2 dims, found {}", describe(*x));
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<ChannelBlocks> blocks,
                            follow_grad_blocks<T>(ctx, args, attrs));
  const ChannelLayout l(x->dims(), attrs.channels_last);
  const int64_t n = l.channels;
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory,
                            ctx.device().scratch(static_cast<size_t>(6 * n) * sizeof(C)));
  C* const scratch = reinterpret_cast<C*>(memory);
  BatchNormGrad<T> g{};
  g.x = stored<T>(*x);
  g.dy = stored<T>(dy);
  g.work = scratch;
  g.constant_statistics = attrs.global;
  MILLRACE_ASSIGN_OR_RETURN(g.scale, channel_values<C>(ctx.find_in(args.scale), "Scale", n));
  MILLRACE_RETURN_IF_ERROR(find_statistics(ctx, args, attrs, g, scratch + 3 * n, n));
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, image_result(ctx, args.dx, *x));
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const dz, image_result(ctx, args.dz, *x));
  if (dx != nullptr) g.dx = stored<T>(*dx);
  const Fused<T> fused{y == nullptr ? nullptr : stored<T>(*y),
                       more == nullptr ? nullptr : stored<T>(*more),
                       dz == nullptr ? nullptr : stored<T>(*dz)};
  MILLRACE_ASSIGN_OR_RETURN(g.dscale,
                            channel_results<C>(ctx.find_out(args.dscale), "Scale@GRAD", n));
  MILLRACE_ASSIGN_OR_RETURN(g.dbias, channel_results<C>(ctx.find_out(args.dbias), "Bias@GRAD", n));
  if (g.dscale == nullptr) g.dscale = scratch + 4 * n;
  if (g.dbias == nullptr) g.dbias = scratch + 5 * n;
  if constexpr (std::is_same_v<T, float>) {
    if (blocks) {
      run_blocks(ctx.device(), g, fused, *blocks);
      return Ok();
    }
  }
  if (fused.y != nullptr || fused.more != nullptr || fused.dz != nullptr) {
    T* masked = fused.dz != nullptr ? fused.dz : g.dx;
    if (masked == nullptr) {
      // X is an input of the program: its gradient is not requested, but Scale and Bias need it
      const auto bytes = static_cast<size_t>(x->numel()) * sizeof(T);
      MILLRACE_ASSIGN_OR_RETURN(std::byte* const own, ctx.device().scratch(bytes, 1));
      masked = reinterpret_cast<T*>(own);
    }
    add_and_mask(ctx.device(), fused, g.dy, x->numel(), masked);
    g.dy = masked;
  }
  if (l.of_channel() == 0 || (l.of_channel() == 1 && !attrs.global)) {
    pass_through(g, n, l.of_channel());
    return Ok();
  }
  l.for_channels(ctx.device(),
                 [&](int64_t begin, int64_t end) { batch_norm_gradient(g, l, begin, end); });
  return Ok();
}

}  // namespace
}  // namespace batch_norm_grad

StatusOr<Kernel> batch_norm_grad_kernel(const KernelSetup& op) {
  using namespace batch_norm_grad;
  const bool fused = op.op().type() == "fused_batch_norm_grad";
  if (op.attr<bool>("fuse_with_relu")) {
    return Status(StatusCode::kUnimplemented,
                  "batch_norm with attribute 'fuse_with_relu' has no gradient");
  }
  const BatchNormGradArgs args(op, fused);
  for (const ArgIndex arg : {args.x, args.y, args.dy, args.more}) op.accept_layout(arg);
  BatchNormGradAttrs attrs;
  attrs.epsilon = op.attr<float>("epsilon");
  attrs.channels_last = channels_last(op, "data_layout");
  attrs.global = op.attr<bool>("use_global_stats") || op.attr<bool>("is_test");
  return Kernel([args, attrs](const KernelContext& ctx) -> Status {
    if (ctx.find_in(args.dy) == nullptr)
      return zero_results(ctx, {args.dx, args.dz, args.dscale, args.dbias});
    return dispatch<AllFloatTypes>(ctx.find_in(args.dy)->dtype(), [&](auto tag) {
      return run_gradient<typename decltype(tag)::type>(ctx, args, attrs);
    });
  });
}

void add_nn_batch_norm_grad(KernelRegistry& registry) {
  registry.add("batch_norm_grad", batch_norm_grad_kernel);
  registry.add("fused_batch_norm_grad", batch_norm_grad_kernel);
}

}  // namespace millrace::kernels
