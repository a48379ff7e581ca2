#include <cmath>
#include <optional>
#include <string>
#include <type_traits>

#include "kernels/cpu/nn/batch_norm_args.h"
#include "kernels/cpu/nn/batch_norm_kernels.h"
#include "kernels/cpu/nn/channel_moments.h"
#include "kernels/cpu/nn/norm_columns.h"
#include "kernels/cpu/wide_loops.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace batch_norm_kernels {
namespace {

struct BatchNormAttrs {
  double epsilon = 0;
  double momentum = 0;
  bool channels_last = false;
  bool global = false;  ///< the running statistics are used
  bool relu = false;
};

BatchNormAttrs read_attrs(const KernelSetup& op) {
  BatchNormAttrs attrs;
  attrs.epsilon = op.attr<float>("epsilon");
  attrs.momentum = op.attr<float>("momentum");
  attrs.channels_last = channels_last(op, "data_layout");
  attrs.global = op.attr<bool>("use_global_stats") ||
                 (op.attr<bool>("is_test") && !op.attr<bool>("trainable_statistics"));
  attrs.relu = op.attr<bool>("fuse_with_relu") || op.op().type() == "fused_batch_norm";
  return attrs;
}

// Operands of one call; absent vectors are null.
template <typename T>
struct BatchNormForward {
  using C = Compute<T>;
  const T* x;
  const T* z;  ///< another image, added to the result; null: none
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

// saved_mean and saved_deviation hold the mean and variance of the batch, or the running ones.
// Updates the running statistics and converts the variance to what the name says.
template <typename T>
void use_statistics(const BatchNormForward<T>& f, const BatchNormAttrs& attrs, int64_t begin,
                    int64_t end) {
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

// Factor and summand of the normalized elements.
template <typename T>
void find_factors(const BatchNormForward<T>& f, int64_t begin, int64_t end, Compute<T>* factor,
                  Compute<T>* summand) {
  using C = Compute<T>;
  for (int64_t c = begin; c < end; ++c) {
    factor[c] = f.saved_deviation[c] * (f.scale == nullptr ? C{1} : f.scale[c]);
    summand[c] = f.bias == nullptr ? C{0} : f.bias[c];
  }
}

template <typename T>
void normalize(const BatchNormForward<T>& f, const BatchNormAttrs& attrs, const ChannelLayout& l,
               Compute<T>* factor, Compute<T>* summand, int64_t begin, int64_t end) {
  using C = Compute<T>;
  find_factors(f, begin, end, factor, summand);
  const T* const x = f.x;
  const T* const z = f.z;
  const C* const mean = f.saved_mean;
  const auto value = [=](int64_t c) {
    return [x, middle = mean[c], times = factor[c], plus = summand[c]](int64_t at) {
      return (static_cast<C>(x[at]) - middle) * times + plus;
    };
  };
  if (z == nullptr && !attrs.relu) {
    map_channel_range(l, begin, end, f.y, value);
    return;
  }
  if (z == nullptr) {
    map_channel_range(l, begin, end, f.y, [value](int64_t c) {
      return [inner = value(c)](int64_t at) {
        const C y = inner(at);
        return y > C{0} ? y : C{0};
      };
    });
    return;
  }
  // only the op with another summand also applies relu
  map_channel_range(l, begin, end, f.y, [value, z](int64_t c) {
    return [inner = value(c), z](int64_t at) {
      const C y = inner(at) + static_cast<C>(z[at]);
      return y > C{0} ? y : C{0};
    };
  });
}

// For images in blocks of channels.
void run_blocks(CpuDevice& device, const BatchNormForward<float>& f, const BatchNormAttrs& attrs,
                const ChannelBlocks& l) {
  NormForward norm;
  norm.l = l;
  norm.x = f.x;
  norm.z = f.z;
  norm.y = f.y;
  norm.scale = f.scale;
  norm.bias = f.bias;
  norm.mean = f.mean;
  norm.variance = f.variance;
  norm.mean_out = f.mean_out;
  norm.variance_out = f.variance_out;
  norm.saved_mean = f.saved_mean;
  norm.saved_deviation = f.saved_deviation;
  norm.momentum = f.momentum;
  norm.epsilon = static_cast<float>(attrs.epsilon);
  norm.global = attrs.global;
  norm.relu = attrs.relu;
  const WideLoops* const wide = wide_loops();
  const NormForwardLoop loop = wide != nullptr ? wide->norm_forward : detail::norm_forward;
  for_norm_columns(device, l, [&](int64_t begin, int64_t end) { loop(norm, begin, end); });
}

// A channel with one value has no variance: the value is copied and the running statistics do not
// change. They also do not change for a channel without values.
template <typename T>
void pass_through(const BatchNormForward<T>& f, const BatchNormAttrs& attrs,
                  const ChannelLayout& l) {
  using C = Compute<T>;
  for (int64_t c = 0; c < l.channels * l.of_channel(); ++c) {
    const C y = static_cast<C>(f.x[c]) + (f.z == nullptr ? C{0} : static_cast<C>(f.z[c]));
    f.y[c] = static_cast<T>(attrs.relu && !(y > C{0}) ? C{0} : y);
  }
  std::fill_n(f.saved_mean, l.channels, Compute<T>{0});
  std::fill_n(f.saved_deviation, l.channels, Compute<T>{0});
  if (f.mean_out != nullptr) std::copy_n(f.mean, l.channels, f.mean_out);
  if (f.variance_out != nullptr) std::copy_n(f.variance, l.channels, f.variance_out);
}

struct BatchNormArgs : BatchNormForwardArgs {
  explicit BatchNormArgs(const KernelSetup& op)
      : BatchNormForwardArgs(op), z(op.input("Z")), momentum(op.input("MomentumTensor")) {}
  ArgIndex z, momentum;
};

// Blocks of channels of X, which Y also gets; otherwise both are row-major.
template <typename T>
StatusOr<std::optional<ChannelBlocks>> follow_blocks(const KernelContext& ctx,
                                                     const BatchNormArgs& args,
                                                     const BatchNormAttrs& attrs) {
  const Tensor& x = ctx.in(args.x);
  if (x.layout() == nullptr) {
    MILLRACE_RETURN_IF_ERROR(bring_to_plain(ctx, {args.z}));
    return std::optional<ChannelBlocks>();
  }
  std::optional<ChannelBlocks> blocks;
  // A channel with one value is handled separately.
  if (std::is_same_v<T, float> && !attrs.channels_last) blocks = channel_blocks(x);
  if (blocks && blocks->outer * blocks->inner < 2) blocks.reset();
  if (!blocks) {
    MILLRACE_RETURN_IF_ERROR(bring_to_plain(ctx, {args.x, args.z}));
  } else {
    const Dims dims(x.dims().begin(), x.dims().end());
    MILLRACE_RETURN_IF_ERROR(bring_to(ctx, args.z, x.layout()));
    MILLRACE_RETURN_IF_ERROR(ctx.out(args.y).resize(x.dtype(), dims, x.layout()));
  }
  return blocks;
}

template <typename T>
Status run_forward(const KernelContext& ctx, const BatchNormArgs& args,
                   const BatchNormAttrs& attrs) {
  using C = Compute<T>;
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, args.x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const mean, needed(ctx, args.mean, "Mean"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const variance, needed(ctx, args.variance, "Variance"));
  const Tensor* const z = ctx.find_in(args.z);
  if (args.z && z == nullptr) return ctx.error("Z must be a dense tensor");
  if (z != nullptr) MILLRACE_RETURN_IF_ERROR(check_alike(*x, "X", *z, "Z"));
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<ChannelBlocks> blocks,
                            follow_blocks<T>(ctx, args, attrs));
  const ChannelLayout l(x->dims(), attrs.channels_last);
  const int64_t n = l.channels;
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory,
                            ctx.device().scratch(static_cast<size_t>(4 * n) * sizeof(C)));
  C* const scratch = reinterpret_cast<C*>(memory);
  BatchNormForward<T> f{};
  f.x = stored<T>(*x);
  f.z = z == nullptr ? nullptr : stored<T>(*z);
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
  if (l.of_channel() == 0 || (l.of_channel() == 1 && !attrs.global)) {
    pass_through(f, attrs, l);
    return Ok();
  }
  if constexpr (std::is_same_v<T, float>) {
    if (blocks) {
      run_blocks(ctx.device(), f, attrs, *blocks);
      return Ok();
    }
  }
  l.for_channels(ctx.device(), [&](int64_t begin, int64_t end) {
    if (!attrs.global) channel_moments(l, begin, end, f.x, f.saved_mean, f.saved_deviation);
    use_statistics(f, attrs, begin, end);
    normalize(f, attrs, l, scratch + 2 * n, scratch + 3 * n, begin, end);
  });
  return Ok();
}

}  // namespace
}  // namespace batch_norm_kernels

StatusOr<Kernel> batch_norm_kernel(const KernelSetup& op) {
  using namespace batch_norm_kernels;
  const BatchNormArgs args(op);
  op.accept_layout(args.x);
  op.accept_layout(args.z);
  return Kernel([args, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    return dispatch<AllFloatTypes>(ctx.in(args.x).dtype(), [&](auto tag) {
      return run_forward<typename decltype(tag)::type>(ctx, args, attrs);
    });
  });
}

void add_nn_batch_norm(KernelRegistry& registry) {
  registry.add("batch_norm", batch_norm_kernel);
  registry.add("fused_batch_norm", batch_norm_kernel);
}

}  // namespace millrace::kernels
