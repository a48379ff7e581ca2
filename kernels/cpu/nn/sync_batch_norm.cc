#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/cpu/nn/batch_norm_args.h"
#include "kernels/cpu/nn/batch_norm_kernels.h"
#include "kernels/cpu/nn/channel_moments.h"
#include "kernels/device_group.h"
#include "kernels/registry.h"

// batch_norm with statistics over the batches of all devices of a group. Devices exchange sums in
// double, so that splitting the batch changes the result by rounding only.
namespace millrace::kernels {
namespace sync_batch_norm_kernels {
namespace {

DeviceGroup* group_of(const KernelContext& ctx) {
  DeviceGroup* const group = ctx.device().library<GroupOfDevice>().group;
  return group == nullptr || group->size() == 1 ? nullptr : group;
}

// The kernel for a device that belongs to no group; without library layouts, because the op takes
// row-major inputs.
StatusOr<Kernel> kernel_alone(const KernelSetup& op, KernelMaker maker) {
  const KernelSetup apart(op.def(), op.op(), op.device(), op.schemas());
  return maker(apart);
}

struct SyncBatchNormForwardArgs : BatchNormForwardArgs {
  explicit SyncBatchNormForwardArgs(const KernelSetup& op)
      : BatchNormForwardArgs(op),
        epsilon(op.attr<float>("epsilon")),
        momentum(op.attr<float>("momentum")),
        last(channels_last(op, "data_layout")) {}
  double epsilon;
  double momentum;
  bool last;
};

// Writes one element per channel to an output, if the op has it.
template <typename C>
Status save_channels(const KernelContext& ctx, ArgIndex to, const char* slot,
                     const std::vector<C>& values) {
  MILLRACE_ASSIGN_OR_RETURN(C* const out, channel_results<C>(ctx.find_out(to), slot,
                                                             static_cast<int64_t>(values.size())));
  if (out != nullptr) std::copy(values.begin(), values.end(), out);
  return Ok();
}

// Mean and variance of each channel over the elements of all devices.
template <typename T>
Status find_moments(const KernelContext& ctx, DeviceGroup& group, const ChannelLayout& l,
                    const T* x, Compute<T>* mean, Compute<T>* variance) {
  const auto channels = static_cast<size_t>(l.channels);
  const auto own = static_cast<double>(l.of_channel());
  l.for_channels(ctx.device(), [&](int64_t begin, int64_t end) {
    channel_moments(l, begin, end, x, mean, variance);
  });
  std::vector<double> sums(2 * channels + 1);
  for (size_t c = 0; c < channels; ++c) {
    const auto middle = static_cast<double>(mean[c]);
    sums[c] = middle * own;
    sums[channels + c] = (static_cast<double>(variance[c]) + middle * middle) * own;
  }
  sums.back() = own;
  MILLRACE_RETURN_IF_ERROR(group.all_reduce(sums));
  for (size_t c = 0; c < channels; ++c) {
    const double middle = sums[c] / sums.back();
    const double spread = sums[channels + c] / sums.back() - middle * middle;
    mean[c] = static_cast<Compute<T>>(middle);
    variance[c] = static_cast<Compute<T>>(std::max(spread, 0.0));
  }
  return Ok();
}

template <typename T>
Status run_forward(const KernelContext& ctx, const SyncBatchNormForwardArgs& args,
                   DeviceGroup& group) {
  using C = Compute<T>;
  const Tensor& x = ctx.in(args.x);
  const ChannelLayout l(x.dims(), args.last);
  const int64_t n = l.channels;
  if (l.of_channel() == 0) return ctx.error("X has no elements on this device");
  std::vector<C> mean(static_cast<size_t>(n));
  std::vector<C> variance(static_cast<size_t>(n));
  MILLRACE_RETURN_IF_ERROR(find_moments(ctx, group, l, x.data<T>(), mean.data(), variance.data()));
  const auto blend = [&](ArgIndex from, ArgIndex to, const char* slot,
                         const std::vector<C>& now) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const C* const old, needed_values<C>(ctx, from, slot, n));
    MILLRACE_ASSIGN_OR_RETURN(C* const out, channel_results<C>(ctx.find_out(to), slot, n));
    const C kept = static_cast<C>(args.momentum);
    for (int64_t c = 0; out != nullptr && c < n; ++c)
      out[c] = old[c] * kept + now[static_cast<size_t>(c)] * (C{1} - kept);
    return Ok();
  };
  MILLRACE_RETURN_IF_ERROR(blend(args.mean, args.mean_out, "Mean", mean));
  MILLRACE_RETURN_IF_ERROR(blend(args.variance, args.variance_out, "Variance", variance));
  for (C& value : variance) value = C{1} / std::sqrt(value + static_cast<C>(args.epsilon));
  MILLRACE_RETURN_IF_ERROR(save_channels(ctx, args.saved_mean, "SavedMean", mean));
  MILLRACE_RETURN_IF_ERROR(save_channels(ctx, args.saved_variance, "SavedVariance", variance));
  MILLRACE_ASSIGN_OR_RETURN(const C* const scale,
                            channel_values<C>(ctx.find_in(args.scale), "Scale", n));
  MILLRACE_ASSIGN_OR_RETURN(const C* const bias,
                            channel_values<C>(ctx.find_in(args.bias), "Bias", n));
  const T* const in = x.data<T>();
  T* const out = ctx.out(args.y).data<T>();
  l.for_channels(ctx.device(), [&](int64_t begin, int64_t end) {
    map_channel_range(l, begin, end, out, [&](int64_t c) {
      const auto k = static_cast<size_t>(c);
      return [in, middle = mean[k], times = variance[k] * (scale == nullptr ? C{1} : scale[c]),
              plus = bias == nullptr ? C{0} : bias[c]](int64_t at) {
        return (static_cast<C>(in[at]) - middle) * times + plus;
      };
    });
  });
  return Ok();
}

StatusOr<Kernel> sync_batch_norm(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(Kernel alone, kernel_alone(op, batch_norm_kernel));
  const bool stored = op.attr<bool>("use_global_stats") ||
                      (op.attr<bool>("is_test") && !op.attr<bool>("trainable_statistics"));
  if (op.attr<bool>("fuse_with_relu"))
    return Status(StatusCode::kUnimplemented, "sync_batch_norm with attribute 'fuse_with_relu'");
  if (stored) return alone;
  const SyncBatchNormForwardArgs args(op);
  return Kernel([args, alone = std::move(alone)](const KernelContext& ctx) -> Status {
    DeviceGroup* const group = group_of(ctx);
    if (group == nullptr) return alone(ctx);
    return dispatch<AllFloatTypes>(ctx.in(args.x).dtype(), [&](auto tag) {
      return run_forward<typename decltype(tag)::type>(ctx, args, *group);
    });
  });
}

struct SyncBatchNormGradArgs {
  explicit SyncBatchNormGradArgs(const KernelSetup& op)
      : x(op.input("X")),
        dy(op.input("Y@GRAD")),
        scale(op.input("Scale")),
        saved_mean(op.input("SavedMean")),
        saved_variance(op.input("SavedVariance")),
        dx(op.output("X@GRAD")),
        dscale(op.output("Scale@GRAD")),
        dbias(op.output("Bias@GRAD")),
        last(channels_last(op, "data_layout")) {}
  ArgIndex x, dy, scale, saved_mean, saved_variance;
  ArgIndex dx, dscale, dbias;
  bool last;
};

// The gradients of Scale and Bias cover this device only; they are summed later like all gradients
// of parameters. The gradient of X needs the sums over all devices.
template <typename T>
Status run_gradient(const KernelContext& ctx, const SyncBatchNormGradArgs& args,
                    DeviceGroup& group) {
  using C = Compute<T>;
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const input, needed(ctx, args.x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const given, needed(ctx, args.dy, "Y@GRAD"));
  MILLRACE_RETURN_IF_ERROR(check_alike(*input, "X", *given, "Y@GRAD"));
  const ChannelLayout l(input->dims(), args.last);
  const int64_t n = l.channels;
  const auto channels = static_cast<size_t>(n);
  MILLRACE_ASSIGN_OR_RETURN(const C* const mean,
                            needed_values<C>(ctx, args.saved_mean, "SavedMean", n));
  MILLRACE_ASSIGN_OR_RETURN(const C* const deviation,
                            needed_values<C>(ctx, args.saved_variance, "SavedVariance", n));
  MILLRACE_ASSIGN_OR_RETURN(const C* const scale,
                            channel_values<C>(ctx.find_in(args.scale), "Scale", n));
  std::vector<C> dbias(channels);
  std::vector<C> dscale(channels);
  const T* const x = input->data<T>();
  const T* const dy = given->data<T>();
  l.for_channels(ctx.device(), [&](int64_t begin, int64_t end) {
    batch_norm_gradient_sums(l, begin, end, x, dy, mean, dbias.data(), dscale.data());
  });
  std::vector<double> sums(2 * channels + 1);
  for (size_t c = 0; c < channels; ++c) {
    dscale[c] *= deviation[c];
    sums[c] = static_cast<double>(dbias[c]);
    sums[channels + c] = static_cast<double>(dscale[c]);
  }
  sums.back() = static_cast<double>(l.of_channel());
  MILLRACE_RETURN_IF_ERROR(group.all_reduce(sums));
  MILLRACE_RETURN_IF_ERROR(save_channels(ctx, args.dbias, "Bias@GRAD", dbias));
  MILLRACE_RETURN_IF_ERROR(save_channels(ctx, args.dscale, "Scale@GRAD", dscale));
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const result, result_like(ctx, args.dx, *input));
  if (result == nullptr) return Ok();
  T* const dx = result->data<T>();
  l.for_channels(ctx.device(), [&](int64_t begin, int64_t end) {
    map_channel_range(l, begin, end, dx, [&](int64_t c) {
      const auto k = static_cast<size_t>(c);
      return [x, dy, middle = mean[c], times = deviation[c] * (scale == nullptr ? C{1} : scale[c]),
              less = static_cast<C>(sums[k] / sums.back()),
              slope = static_cast<C>(sums[channels + k] / sums.back()) * deviation[c]](int64_t at) {
        return times * (static_cast<C>(dy[at]) - less - (static_cast<C>(x[at]) - middle) * slope);
      };
    });
  });
  return Ok();
}

StatusOr<Kernel> sync_batch_norm_grad(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(Kernel alone, kernel_alone(op, batch_norm_grad_kernel));
  if (op.attr<bool>("use_global_stats") || op.attr<bool>("is_test")) return alone;
  const SyncBatchNormGradArgs args(op);
  return Kernel([args, alone = std::move(alone)](const KernelContext& ctx) -> Status {
    DeviceGroup* const group = group_of(ctx);
    if (group == nullptr || ctx.find_in(args.dy) == nullptr) return alone(ctx);
    return dispatch<AllFloatTypes>(ctx.find_in(args.dy)->dtype(), [&](auto tag) {
      return run_gradient<typename decltype(tag)::type>(ctx, args, *group);
    });
  });
}

}  // namespace
}  // namespace sync_batch_norm_kernels

void add_nn_sync_batch_norm(KernelRegistry& registry) {
  using namespace sync_batch_norm_kernels;
  registry.add("sync_batch_norm", sync_batch_norm);
  registry.add("sync_batch_norm_grad", sync_batch_norm_grad);
}

}  // namespace millrace::kernels
