#include "kernels/cpu/nn/batch_norm_grad.h"

#include <cmath>
#include <optional>
#include <type_traits>

#include "kernels/cpu/nn/batch_norm_blocks.h"
#include "kernels/cpu/nn/nn.h"

namespace millrace::kernels {
namespace {

struct Args {
  explicit Args(const KernelSetup& op)
      : x(op.input("X")),
        dy(op.input("Y@GRAD")),
        scale(op.input("Scale")),
        saved_mean(op.input("SavedMean")),
        saved_variance(op.input("SavedVariance")),
        mean(op.input(op.input("Mean") ? "Mean" : "MeanOut")),
        variance(op.input(op.input("Variance") ? "Variance" : "VarianceOut")),
        dx(op.output("X@GRAD")),
        dscale(op.output("Scale@GRAD")),
        dbias(op.output("Bias@GRAD")) {}
  ArgIndex x, dy, scale, saved_mean, saved_variance, mean, variance;
  ArgIndex dx, dscale, dbias;
};

struct Attrs {
  double epsilon = 0;
  bool channels_last = false;
  bool global = false;
};

// Gradients of a channel with one element, which the forward op passed on.
template <typename T>
void pass_through(const BatchNormGrad<T>& g, int64_t channels) {
  if (g.dx != nullptr && g.dx != g.dy) std::copy_n(g.dy, channels, g.dx);
  std::fill_n(g.dscale, channels, Compute<T>{0});
  std::fill_n(g.dbias, channels, Compute<T>{0});
}

// The statistics the forward op used; those of running variance need `deviation` as memory.
template <typename T>
Status find_statistics(const KernelContext& ctx, const Args& args, const Attrs& attrs,
                       BatchNormGrad<T>& g, Compute<T>* deviation, int64_t n) {
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

// Blocks of channels that X, Y@GRAD and X@GRAD are in; else all are row-major.
template <typename T>
StatusOr<std::optional<ChannelBlocks>> follow_blocks(const KernelContext& ctx, const Args& args,
                                                     const Attrs& attrs) {
  const Tensor& x = ctx.in(args.x);
  std::optional<ChannelBlocks> blocks;
  if (std::is_same_v<T, float> && !attrs.channels_last) blocks = channel_blocks(x);
  if (blocks && blocks->outer * blocks->inner < 2) blocks.reset();
  MILLRACE_RETURN_IF_ERROR(bring_to(ctx, args.x, blocks ? x.layout() : nullptr));
  MILLRACE_RETURN_IF_ERROR(bring_to(ctx, args.dy, x.layout()));
  return blocks;
}

// Images in blocks of channels; work has six elements for each, padding included.
void run_blocks(CpuDevice& device, const BatchNormGrad<float>& g, const ChannelBlocks& l,
                float* work) {
  float* const mean = work;
  float* const factor = mean + l.padded();
  float* const shift = factor + l.padded();
  float* const tilt = shift + l.padded();
  float* const dbias = tilt + l.padded();
  float* const dscale = dbias + l.padded();
  std::fill_n(work, 4 * l.padded(), 0.0F);
  std::copy_n(g.mean, l.channels, mean);
  block_grad_sums(device, l, g.x, g.dy, mean, dbias, dscale);
  const float share = g.constant_statistics ? 0.0F : 1.0F / static_cast<float>(l.outer * l.inner);
  for (int64_t c = 0; c < l.channels; ++c) {
    g.dbias[c] = dbias[c];
    g.dscale[c] = dscale[c] * g.deviation[c];
    factor[c] = g.scale == nullptr ? g.deviation[c] : g.deviation[c] * g.scale[c];
    shift[c] = g.dbias[c] * share;
    tilt[c] = g.deviation[c] * g.dscale[c] * share;
  }
  if (g.dx != nullptr) block_grad(device, l, {mean, factor, shift, tilt}, g.x, g.dy, g.dx);
}

template <typename T>
Status run_gradient(const KernelContext& ctx, const Args& args, const Attrs& attrs) {
  using C = Compute<T>;
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, args.x, "X"));
  const Tensor& dy = *ctx.find_in(args.dy);
  MILLRACE_RETURN_IF_ERROR(check_alike(*x, "X", dy, "Y@GRAD"));
  if (x->rank() < 2) return ctx.error("X must have at least 2 dims, found {}", describe(*x));
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<ChannelBlocks> blocks,
                            follow_blocks<T>(ctx, args, attrs));
  const ChannelLayout l(x->dims(), attrs.channels_last);
  const int64_t n = l.channels;
  const int64_t padded = blocks ? blocks->padded() : 0;
  MILLRACE_ASSIGN_OR_RETURN(
      std::byte* const memory,
      ctx.device().scratch(static_cast<size_t>(6 * (n + padded)) * sizeof(C)));
  C* const scratch = reinterpret_cast<C*>(memory);
  BatchNormGrad<T> g{};
  g.x = stored<T>(*x);
  g.dy = stored<T>(dy);
  g.work = scratch;
  g.constant_statistics = attrs.global;
  MILLRACE_ASSIGN_OR_RETURN(g.scale, channel_values<C>(ctx.find_in(args.scale), "Scale", n));
  MILLRACE_RETURN_IF_ERROR(find_statistics(ctx, args, attrs, g, scratch + 3 * n, n));
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, result_like(ctx, args.dx, *x));
  if (dx != nullptr) {
    const Dims dims(x->dims().begin(), x->dims().end());
    MILLRACE_RETURN_IF_ERROR(dx->resize(x->dtype(), dims, x->layout()));
    g.dx = stored<T>(*dx);
  }
  MILLRACE_ASSIGN_OR_RETURN(g.dscale,
                            channel_results<C>(ctx.find_out(args.dscale), "Scale@GRAD", n));
  MILLRACE_ASSIGN_OR_RETURN(g.dbias, channel_results<C>(ctx.find_out(args.dbias), "Bias@GRAD", n));
  if (g.dscale == nullptr) g.dscale = scratch + 4 * n;
  if (g.dbias == nullptr) g.dbias = scratch + 5 * n;
  if (l.of_channel() == 1 && !attrs.global) {
    pass_through(g, n);
    return Ok();
  }
  if constexpr (std::is_same_v<T, float>) {
    if (blocks) {
      run_blocks(ctx.device(), g, *blocks, scratch + 6 * n);
      return Ok();
    }
  }
  l.for_channels(ctx.device(),
                 [&](int64_t begin, int64_t end) { batch_norm_gradient(g, l, begin, end); });
  return Ok();
}

Status zero_all(const KernelContext& ctx, const Args& args) {
  for (const ArgIndex arg : {args.dx, args.dscale, args.dbias}) {
    if (Tensor* const out = ctx.find_out(arg)) fill_zero(*out);
  }
  return Ok();
}

}  // namespace

StatusOr<Kernel> batch_norm_grad_kernel(const KernelSetup& op) {
  if (op.attr<bool>("fuse_with_relu")) {
    return Status(StatusCode::kUnimplemented,
                  "batch_norm with attribute 'fuse_with_relu' has no gradient");
  }
  const Args args(op);
  op.accept_layout(args.x);
  op.accept_layout(args.dy);
  Attrs attrs;
  attrs.epsilon = op.attr<float>("epsilon");
  attrs.channels_last = channels_last(op, "data_layout");
  attrs.global = op.attr<bool>("use_global_stats") || op.attr<bool>("is_test");
  return Kernel([args, attrs](const KernelContext& ctx) -> Status {
    if (ctx.find_in(args.dy) == nullptr) return zero_all(ctx, args);
    return dispatch<AllFloatTypes>(ctx.find_in(args.dy)->dtype(), [&](auto tag) {
      return run_gradient<typename decltype(tag)::type>(ctx, args, attrs);
    });
  });
}

void add_batch_norm_grad(KernelRegistry& registry) {
  registry.add("batch_norm_grad", batch_norm_grad_kernel);
}

}  // namespace millrace::kernels
