#include <cmath>
#include <optional>
#include <string>
#include <type_traits>

#include "kernels/cpu/nn/batch_norm_blocks.h"
#include "kernels/cpu/nn/batch_norm_grad.h"
#include "kernels/cpu/nn/channel_moments.h"
#include "kernels/cpu/nn/nn.h"

namespace millrace::kernels {
namespace {

struct Attrs {
  double epsilon = 0;
  double momentum = 0;
  bool channels_last = false;
  bool global = false;  ///< the running statistics are used
  bool relu = false;
};

Attrs read_attrs(const KernelSetup& op) {
  Attrs attrs;
  attrs.epsilon = op.attr<float>("epsilon");
  attrs.momentum = op.attr<float>("momentum");
  attrs.channels_last = channels_last(op, "data_layout");
  attrs.global = op.attr<bool>("use_global_stats") ||
                 (op.attr<bool>("is_test") && !op.attr<bool>("trainable_statistics"));
  attrs.relu = op.attr<bool>("fuse_with_relu");
  return attrs;
}

// What one call works on; absent vectors are null.
template <typename T>
struct Forward {
  using C = Compute<T>;
  const T* x;
  const C* scale;
  const C* bias;
  const C* mean;
  const C* variance;
  T* y;
  C* mean_out;
  C* variance_out;
  C* saved_mean;
  C* saved_deviation;  ///< 1 / sqrt(variance + epsilon)
  C momentum;
};

// Mean and variance of the batch, or the running ones, are in saved_mean and saved_deviation: the
// running ones move on, the variance becomes what the name says.
template <typename T>
void use_statistics(const Forward<T>& f, const Attrs& attrs, int64_t begin, int64_t end) {
  using C = Compute<T>;
  if (attrs.global) {
    std::copy(f.mean + begin, f.mean + end, f.saved_mean + begin);
    std::copy(f.variance + begin, f.variance + end, f.saved_deviation + begin);
    if (f.mean_out != nullptr) std::copy(f.mean + begin, f.mean + end, f.mean_out + begin);
    if (f.variance_out != nullptr)
      std::copy(f.variance + begin, f.variance + end, f.variance_out + begin);
  } else {
    const auto blend = [&](C* out, const C* old, const C* now) {
      if (out == nullptr) return;
      for (int64_t c = begin; c < end; ++c)
        out[c] = old[c] * f.momentum + now[c] * (C{1} - f.momentum);
    };
    blend(f.mean_out, f.mean, f.saved_mean);
    blend(f.variance_out, f.variance, f.saved_deviation);
  }
  for (int64_t c = begin; c < end; ++c)
    f.saved_deviation[c] = C{1} / std::sqrt(f.saved_deviation[c] + static_cast<C>(attrs.epsilon));
}

// What the normalised elements are multiplied by and what is added.
template <typename T>
void find_factors(const Forward<T>& f, int64_t begin, int64_t end, Compute<T>* factor,
                  Compute<T>* summand) {
  using C = Compute<T>;
  for (int64_t c = begin; c < end; ++c) {
    factor[c] = f.saved_deviation[c] * (f.scale == nullptr ? C{1} : f.scale[c]);
    summand[c] = f.bias == nullptr ? C{0} : f.bias[c];
  }
}

template <typename T>
void normalise(const Forward<T>& f, const Attrs& attrs, const ChannelLayout& l, Compute<T>* factor,
               Compute<T>* summand, int64_t begin, int64_t end) {
  using C = Compute<T>;
  find_factors(f, begin, end, factor, summand);
  const T* const x = f.x;
  const C* const mean = f.saved_mean;
  const auto value = [=](int64_t c) {
    return [x, middle = mean[c], times = factor[c], plus = summand[c]](int64_t at) {
      return (static_cast<C>(x[at]) - middle) * times + plus;
    };
  };
  if (!attrs.relu) {
    map_channel_range(l, begin, end, f.y, value);
    return;
  }
  map_channel_range(l, begin, end, f.y, [value](int64_t c) {
    return [inner = value(c)](int64_t at) {
      const C y = inner(at);
      return y > C{0} ? y : C{0};
    };
  });
}

// Images in blocks of channels; work has four elements for each, padding included.
void run_blocks(CpuDevice& device, const Forward<float>& f, const Attrs& attrs,
                const ChannelBlocks& l, float* work) {
  float* const mean = work;
  float* const variance = mean + l.padded();
  float* const factor = variance + l.padded();
  float* const summand = factor + l.padded();
  std::fill_n(work, 4 * l.padded(), 0.0F);
  if (!attrs.global) {
    block_moments(device, l, f.x, mean, variance);
    std::copy_n(mean, l.channels, f.saved_mean);
    std::copy_n(variance, l.channels, f.saved_deviation);
  }
  use_statistics(f, attrs, 0, l.channels);
  std::copy_n(f.saved_mean, l.channels, mean);
  find_factors(f, 0, l.channels, factor, summand);
  block_affine(device, l, {mean, factor, summand, attrs.relu}, f.x, f.y);
}

// One value in a channel has no variance: it passes, and the statistics stay.
template <typename T>
void pass_through(const Forward<T>& f, const ChannelLayout& l) {
  std::copy_n(f.x, l.channels, f.y);
  std::fill_n(f.saved_mean, l.channels, Compute<T>{0});
  std::fill_n(f.saved_deviation, l.channels, Compute<T>{0});
  if (f.mean_out != nullptr) std::copy_n(f.mean, l.channels, f.mean_out);
  if (f.variance_out != nullptr) std::copy_n(f.variance, l.channels, f.variance_out);
}

struct ForwardArgs {
  explicit ForwardArgs(const KernelSetup& op)
      : x(op.input("X")),
        scale(op.input("Scale")),
        bias(op.input("Bias")),
        mean(op.input("Mean")),
        variance(op.input("Variance")),
        momentum(op.input("MomentumTensor")),
        y(op.output("Y")),
        mean_out(op.output("MeanOut")),
        variance_out(op.output("VarianceOut")),
        saved_mean(op.output("SavedMean")),
        saved_variance(op.output("SavedVariance")) {}
  ArgIndex x, scale, bias, mean, variance, momentum;
  ArgIndex y, mean_out, variance_out, saved_mean, saved_variance;
};

// Blocks of channels that X is in and Y will be; else both are row-major.
template <typename T>
StatusOr<std::optional<ChannelBlocks>> follow_blocks(const KernelContext& ctx,
                                                     const ForwardArgs& args, const Attrs& attrs) {
  const Tensor& x = ctx.in(args.x);
  if (x.layout() == nullptr) return std::optional<ChannelBlocks>();
  std::optional<ChannelBlocks> blocks;
  // One value in a channel is a case of its own.
  if (std::is_same_v<T, float> && !attrs.channels_last) blocks = channel_blocks(x);
  if (blocks && blocks->outer * blocks->inner < 2) blocks.reset();
  if (!blocks) {
    MILLRACE_RETURN_IF_ERROR(bring_to_plain(ctx, {args.x}));
  } else {
    const Dims dims(x.dims().begin(), x.dims().end());
    MILLRACE_RETURN_IF_ERROR(ctx.out(args.y).resize(x.dtype(), dims, x.layout()));
  }
  return blocks;
}

template <typename T>
Status run_forward(const KernelContext& ctx, const ForwardArgs& args, const Attrs& attrs) {
  using C = Compute<T>;
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, args.x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const mean, needed(ctx, args.mean, "Mean"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const variance, needed(ctx, args.variance, "Variance"));
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<ChannelBlocks> blocks,
                            follow_blocks<T>(ctx, args, attrs));
  const ChannelLayout l(x->dims(), attrs.channels_last);
  const int64_t n = l.channels;
  const int64_t padded = blocks ? blocks->padded() : n;
  MILLRACE_ASSIGN_OR_RETURN(
      std::byte* const memory,
      ctx.device().scratch(static_cast<size_t>(2 * n + 4 * padded) * sizeof(C)));
  C* const scratch = reinterpret_cast<C*>(memory);
  Forward<T> f{};
  f.x = stored<T>(*x);
  f.y = stored<T>(ctx.out(args.y));
  MILLRACE_ASSIGN_OR_RETURN(f.scale, channel_values<C>(ctx.find_in(args.scale), "Scale", n));
  MILLRACE_ASSIGN_OR_RETURN(f.bias, channel_values<C>(ctx.find_in(args.bias), "Bias", n));
  MILLRACE_ASSIGN_OR_RETURN(f.mean, channel_values<C>(mean, "Mean", n));
  MILLRACE_ASSIGN_OR_RETURN(f.variance, channel_values<C>(variance, "Variance", n));
  MILLRACE_ASSIGN_OR_RETURN(f.mean_out,
                            channel_results<C>(ctx.find_out(args.mean_out), "MeanOut", n));
  MILLRACE_ASSIGN_OR_RETURN(f.variance_out,
                            channel_results<C>(ctx.find_out(args.variance_out), "VarianceOut", n));
  MILLRACE_ASSIGN_OR_RETURN(f.saved_mean,
                            channel_results<C>(ctx.find_out(args.saved_mean), "SavedMean", n));
  MILLRACE_ASSIGN_OR_RETURN(
      f.saved_deviation, channel_results<C>(ctx.find_out(args.saved_variance), "SavedVariance", n));
  if (f.saved_mean == nullptr) f.saved_mean = scratch;
  if (f.saved_deviation == nullptr) f.saved_deviation = scratch + n;
  f.momentum = static_cast<C>(attrs.momentum);
  if (const Tensor* const given = ctx.find_in(args.momentum)) {
    MILLRACE_ASSIGN_OR_RETURN(const float* const value,
                              channel_values<float>(given, "MomentumTensor", 1));
    f.momentum = static_cast<C>(*value);
  }
  if (l.of_channel() == 0) return Ok();
  if (l.of_channel() == 1 && !attrs.global) {
    pass_through(f, l);
    return Ok();
  }
  if constexpr (std::is_same_v<T, float>) {
    if (blocks) {
      run_blocks(ctx.device(), f, attrs, *blocks, scratch + 2 * n);
      return Ok();
    }
  }
  l.for_channels(ctx.device(), [&](int64_t begin, int64_t end) {
    if (!attrs.global) channel_moments(l, begin, end, f.x, f.saved_mean, f.saved_deviation);
    use_statistics(f, attrs, begin, end);
    normalise(f, attrs, l, scratch + 2 * n, scratch + 3 * n, begin, end);
  });
  return Ok();
}

}  // namespace

StatusOr<Kernel> batch_norm_kernel(const KernelSetup& op) {
  const ForwardArgs args(op);
  op.accept_layout(args.x);
  return Kernel([args, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    return dispatch<AllFloatTypes>(ctx.in(args.x).dtype(), [&](auto tag) {
      return run_forward<typename decltype(tag)::type>(ctx, args, attrs);
    });
  });
}

void add_batch_norm(KernelRegistry& registry) {
  registry.add("batch_norm", batch_norm_kernel);
}

}  // namespace millrace::kernels
