#include <cmath>
#include <utility>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/int_list.h"
#include "kernels/cpu/lane_sum.h"
#include "kernels/cpu/nn/channels.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// group_norm, and instance_norm, where every channel is a group.
namespace millrace::kernels {
namespace group_norm {
namespace {

// Memory positions of the elements of a channel group.
struct Groups {
  ChannelLayout layout;
  int64_t batch = 0;
  int64_t count = 0;     // groups per image
  int64_t channels = 0;  // channels per group
  int64_t pixels = 0;
  bool last = false;

  [[nodiscard]] int64_t all() const { return batch * count; }
  [[nodiscard]] int64_t elements() const { return channels * pixels; }

  // Calls body(first element, number of elements, channel, channel stride) for each contiguous run
  // of group g of image n.
  template <typename Body>
  void for_runs(int64_t group, Body&& body) const {
    const int64_t n = group / count;
    const int64_t first = group % count * channels;
    if (!last) {
      for (int64_t c = first; c < first + channels; ++c)
        body((n * layout.channels + c) * pixels, pixels, c, int64_t{0});
      return;
    }
    for (int64_t p = 0; p < pixels; ++p)
      body((n * pixels + p) * layout.channels + first, channels, first, int64_t{1});
  }
};

StatusOr<Groups> groups_of(const Tensor& x, int64_t count, bool last) {
  if (x.rank() < 2)
    return KernelContext::error("X must have at least 2 dims, found {}", describe(x));
  Groups groups{ChannelLayout(x.dims(), last)};
  groups.last = last;
  groups.batch = x.dim(0);
  groups.count = count == 0 ? groups.layout.channels : count;
  if (groups.count < 0 || (groups.count > 0 && groups.layout.channels % groups.count != 0)) {
    return KernelContext::error("attribute 'groups' ({}) does not divide the {} channels of X",
                                count, groups.layout.channels);
  }
  groups.channels = groups.count == 0 ? 0 : groups.layout.channels / groups.count;
  groups.pixels = groups.layout.channels == 0 || groups.batch == 0
                      ? 0
                      : x.numel() / groups.batch / groups.layout.channels;
  return groups;
}

int64_t grain_of(const Groups& groups) {
  return std::max<int64_t>(32768 / std::max<int64_t>(groups.elements(), 1), 1);
}

// What differs between group_norm and instance_norm.
struct Flavour {
  int64_t groups = 0;  // 0: one per channel
  double epsilon = 0;
  bool last = false;
  bool saves_deviation = false;  // instance_norm saves 1 / sqrt(variance + epsilon)
  // As in the original's group_norm: variance is the mean of squares minus the square of the mean,
  // and without Scale the gradient ignores the mean of dy.
  bool as_original = false;
  const char* mean_slot = "";
  const char* variance_slot = "";
};

Flavour group_flavour(const KernelSetup& op) {
  return {std::max<int64_t>(op.attr<int64_t>("groups"), 1),
          op.attr<float>("epsilon"),
          channels_last(op, "data_layout"),
          false,
          true,
          "Mean",
          "Variance"};
}

Flavour instance_flavour(const KernelSetup& op) {
  return {0, op.attr<float>("epsilon"), false, true, false, "SavedMean", "SavedVariance"};
}

template <typename T>
T value_or(const T* values, int64_t at, T fallback) {
  return values == nullptr ? fallback : values[at];
}

template <typename T>
std::pair<T, T> moments(const Groups& groups, int64_t g, const T* x, bool from_squares) {
  const T share = T{1} / static_cast<T>(std::max<int64_t>(groups.elements(), 1));
  T mean = 0;
  T squares = 0;
  groups.for_runs(g, [&](int64_t at, int64_t n, int64_t, int64_t) {
    mean += lane_sum<T>(n, [&](int64_t i) { return x[at + i]; });
  });
  mean *= share;
  const T from = from_squares ? T{0} : mean;
  groups.for_runs(g, [&](int64_t at, int64_t n, int64_t, int64_t) {
    squares += lane_sum<T>(n, [&](int64_t i) { return (x[at + i] - from) * (x[at + i] - from); });
  });
  const T variance = squares * share;
  if (!from_squares) return {mean, variance};
  // The product is rounded, not fused into the subtraction: for groups of a few nearly equal
  // elements, the result consists of the rounding error only.
  const volatile T square = mean * mean;
  return {mean, std::max(variance - square, T{0})};
}

struct GroupNormForwardArgs {
  ArgIndex x, scale, bias, y, mean, variance;
};

template <typename T>
Status run_forward(const KernelContext& ctx, const GroupNormForwardArgs& args, const Flavour& f) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const in, needed(ctx, args.x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const Groups groups, groups_of(*in, f.groups, f.last));
  const int64_t channels = groups.layout.channels;
  MILLRACE_ASSIGN_OR_RETURN(const T* const scale,
                            channel_values<T>(ctx.find_in(args.scale), "Scale", channels));
  MILLRACE_ASSIGN_OR_RETURN(const T* const bias,
                            channel_values<T>(ctx.find_in(args.bias), "Bias", channels));
  MILLRACE_ASSIGN_OR_RETURN(T* const means,
                            channel_results<T>(ctx.find_out(args.mean), f.mean_slot, groups.all()));
  MILLRACE_ASSIGN_OR_RETURN(T* const variances, channel_results<T>(ctx.find_out(args.variance),
                                                                   f.variance_slot, groups.all()));
  const T* const x = in->data<T>();
  T* const y = ctx.out(args.y).data<T>();
  ctx.device().parallel_for(groups.all(), grain_of(groups), [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      const auto [mean, variance] = moments(groups, g, x, f.as_original);
      const T deviation = T{1} / std::sqrt(variance + static_cast<T>(f.epsilon));
      if (means != nullptr) means[g] = mean;
      if (variances != nullptr) variances[g] = f.saves_deviation ? deviation : variance;
      groups.for_runs(g, [&](int64_t at, int64_t n, int64_t c, int64_t step) {
        if (step == 0) {
          const T times = deviation * value_or(scale, c, T{1});
          const T plus = value_or(bias, c, T{0});
          for (int64_t i = 0; i < n; ++i) y[at + i] = (x[at + i] - mean) * times + plus;
          return;
        }
        for (int64_t i = 0; i < n; ++i) {
          y[at + i] = (x[at + i] - mean) * deviation * value_or(scale, c + i, T{1}) +
                      value_or(bias, c + i, T{0});
        }
      });
    }
  });
  return Ok();
}

template <Flavour (*kFlavour)(const KernelSetup&)>
StatusOr<Kernel> forward(const KernelSetup& op) {
  const Flavour flavour = kFlavour(op);
  const GroupNormForwardArgs args{op.input("X"),
                                  op.input("Scale"),
                                  op.input("Bias"),
                                  op.output("Y"),
                                  op.output(flavour.mean_slot),
                                  op.output(flavour.variance_slot)};
  return Kernel([args, flavour](const KernelContext& ctx) -> Status {
    return dispatch<FloatTypes>(ctx.in(args.x).dtype(), [&](auto tag) {
      return run_forward<typename decltype(tag)::type>(ctx, args, flavour);
    });
  });
}

struct GroupNormBackwardArgs {
  ArgIndex x, scale, mean, variance, dy, dx, dscale, dbias;
};

// Operands of one call; dx is null if not requested. dscale and dbias have one row per image.
template <typename T>
struct GroupNormBackward {
  const T* x;
  const T* dy;
  const T* scale;
  const T* mean;
  const T* variance;
  T* dx;
  T* dscale;
  T* dbias;
};

template <typename T>
void group_gradient(const Groups& groups, const Flavour& f, const GroupNormBackward<T>& b,
                    int64_t g) {
  const T mean = b.mean[g];
  const T deviation = f.saves_deviation
                          ? b.variance[g]
                          : T{1} / std::sqrt(b.variance[g] + static_cast<T>(f.epsilon));
  const int64_t row = g / groups.count * groups.layout.channels;
  const T* const x = b.x;
  const T* const dy = b.dy;
  T total = 0;
  T along = 0;
  groups.for_runs(g, [&](int64_t at, int64_t n, int64_t c, int64_t step) {
    if (step == 0) {
      const T sum = lane_sum<T>(n, [&](int64_t i) { return dy[at + i]; });
      const T product =
          deviation * lane_sum<T>(n, [&](int64_t i) { return dy[at + i] * (x[at + i] - mean); });
      b.dbias[row + c] = sum;
      b.dscale[row + c] = product;
      total += sum * value_or(b.scale, c, T{1});
      along += product * value_or(b.scale, c, T{1});
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      const T product = dy[at + i] * (x[at + i] - mean) * deviation;
      b.dbias[row + c + i] += dy[at + i];
      b.dscale[row + c + i] += product;
      total += dy[at + i] * value_or(b.scale, c + i, T{1});
      along += product * value_or(b.scale, c + i, T{1});
    }
  });
  if (b.dx == nullptr) return;
  const T share = T{1} / static_cast<T>(groups.elements());
  const T shift = f.as_original && b.scale == nullptr ? T{0} : total * share;
  const T tilt = along * share * deviation;
  groups.for_runs(g, [&](int64_t at, int64_t n, int64_t c, int64_t step) {
    if (step == 0) {
      const T times = value_or(b.scale, c, T{1});
      for (int64_t i = 0; i < n; ++i)
        b.dx[at + i] = deviation * (dy[at + i] * times - shift - (x[at + i] - mean) * tilt);
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      b.dx[at + i] = deviation * (dy[at + i] * value_or(b.scale, c + i, T{1}) - shift -
                                  (x[at + i] - mean) * tilt);
    }
  });
}

// sums[c] = sum of the rows of partial.
template <typename T>
void add_rows(const T* partial, int64_t rows, int64_t width, T* sums) {
  if (sums == nullptr) return;
  std::fill_n(sums, width, T{0});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < width; ++c) sums[c] += partial[r * width + c];
  }
}

template <typename T>
Status run_backward(const KernelContext& ctx, const GroupNormBackwardArgs& args, const Flavour& f) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, args.x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const mean, needed(ctx, args.mean, f.mean_slot));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const variance,
                            needed(ctx, args.variance, f.variance_slot));
  const Tensor& dy = *ctx.find_in(args.dy);
  MILLRACE_RETURN_IF_ERROR(check_alike(*x, "X", dy, "Y@GRAD"));
  MILLRACE_ASSIGN_OR_RETURN(const Groups groups, groups_of(*x, f.groups, f.last));
  const int64_t channels = groups.layout.channels;
  const int64_t cells = groups.batch * channels;
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory,
                            ctx.device().scratch(static_cast<size_t>(2 * cells) * sizeof(T)));
  GroupNormBackward<T> b{};
  b.x = x->data<T>();
  b.dy = dy.data<T>();
  b.dscale = reinterpret_cast<T*>(memory);
  b.dbias = b.dscale + cells;
  std::fill_n(b.dscale, 2 * cells, T{0});
  MILLRACE_ASSIGN_OR_RETURN(b.scale, channel_values<T>(ctx.find_in(args.scale), "Scale", channels));
  MILLRACE_ASSIGN_OR_RETURN(b.mean, channel_values<T>(mean, f.mean_slot, groups.all()));
  MILLRACE_ASSIGN_OR_RETURN(b.variance, channel_values<T>(variance, f.variance_slot, groups.all()));
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, result_like(ctx, args.dx, *x));
  if (dx != nullptr) b.dx = dx->data<T>();
  MILLRACE_ASSIGN_OR_RETURN(T* const dscale,
                            channel_results<T>(ctx.find_out(args.dscale), "Scale@GRAD", channels));
  // without Scale, inference has no var from which to take the shape of Bias
  Tensor* const bias_out = ctx.find_out(args.dbias);
  if (bias_out != nullptr)
    MILLRACE_RETURN_IF_ERROR(size_output(*bias_out, kDTypeOf<T>, {channels}));
  MILLRACE_ASSIGN_OR_RETURN(T* const dbias,
                            channel_results<T>(ctx.find_out(args.dbias), "Bias@GRAD", channels));
  ctx.device().parallel_for(groups.all(), grain_of(groups), [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) group_gradient(groups, f, b, g);
  });
  add_rows(b.dscale, groups.batch, channels, dscale);
  add_rows(b.dbias, groups.batch, channels, dbias);
  return Ok();
}

template <Flavour (*kFlavour)(const KernelSetup&)>
StatusOr<Kernel> backward(const KernelSetup& op) {
  const Flavour flavour = kFlavour(op);
  const GroupNormBackwardArgs args{op.input("X"),
                                   op.input("Scale"),
                                   op.input(flavour.mean_slot),
                                   op.input(flavour.variance_slot),
                                   op.input("Y@GRAD"),
                                   op.output("X@GRAD"),
                                   op.output("Scale@GRAD"),
                                   op.output("Bias@GRAD")};
  return Kernel([args, flavour](const KernelContext& ctx) -> Status {
    return for_gradient<FloatTypes>(
        ctx, args.dy, {args.dx, args.dscale, args.dbias},
        [&](auto tag) { return run_backward<typename decltype(tag)::type>(ctx, args, flavour); });
  });
}

}  // namespace
}  // namespace group_norm

void add_nn_group_norm(KernelRegistry& registry) {
  using namespace group_norm;
  registry.add("group_norm", forward<group_flavour>);
  registry.add("group_norm_grad", backward<group_flavour>);
  registry.add("instance_norm", forward<instance_flavour>);
  registry.add("instance_norm_grad", backward<instance_flavour>);
}

}  // namespace millrace::kernels
