#include <cmath>
#include <string>

#include "kernels/cpu/gradient.h"
#include "kernels/cpu/nn/batch_norm_kernels.h"
#include "kernels/registry.h"

// The activation of inplace_abn and its inverse; the batch normalization is that of batch_norm.
namespace millrace::kernels {
namespace inplace_abn_kernels {
namespace {

enum class Activation : uint8_t { kIdentity, kLeakyRelu, kElu };

struct InplaceAbnAttrs {
  Activation activation = Activation::kIdentity;
  double alpha = 0;
  double epsilon = 0;
  bool channels_last = false;
  bool global = false;
};

StatusOr<InplaceAbnAttrs> read_attrs(const KernelSetup& op) {
  InplaceAbnAttrs attrs;
  const auto name = op.attr<std::string>("activation");
  if (name == "leaky_relu" || name == "leakyrelu") {
    attrs.activation = Activation::kLeakyRelu;
  } else if (name == "elu") {
    attrs.activation = Activation::kElu;
  } else if (name != "identity") {
    return op.error("attribute 'activation' is '{}'", name);
  }
  attrs.alpha = op.attr<float>("alpha");
  attrs.epsilon = op.attr<float>("epsilon");
  attrs.channels_last = channels_last(op, "data_layout");
  attrs.global = op.attr<bool>("use_global_stats") || op.attr<bool>("is_test");
  return attrs;
}

template <typename T>
void activate(const InplaceAbnAttrs& attrs, std::span<T> y) {
  const T alpha = static_cast<T>(attrs.alpha);
  if (attrs.activation == Activation::kLeakyRelu) {
    for (T& value : y) value = value < 0 ? value * alpha : value;
  } else if (attrs.activation == Activation::kElu) {
    for (T& value : y) value = value < 0 ? alpha * std::expm1(value) : value;
  }
}

// The input of the activation that results in y, and its slope there.
template <typename T>
std::pair<T, T> undo(const InplaceAbnAttrs& attrs, T y) {
  const T alpha = static_cast<T>(attrs.alpha);
  if (attrs.activation == Activation::kIdentity || !(y < 0)) return {y, T{1}};
  if (attrs.activation == Activation::kLeakyRelu) return {y / alpha, alpha};
  return {std::log1p(y / alpha), y + alpha};
}

StatusOr<Kernel> inplace_abn(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const InplaceAbnAttrs attrs, read_attrs(op));
  MILLRACE_ASSIGN_OR_RETURN(Kernel normalize, batch_norm_kernel(op));
  const ArgIndex y = op.output("Y");
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_RETURN_IF_ERROR(normalize(ctx));
    Tensor& out = ctx.out(y);
    return dispatch<FloatTypes>(out.dtype(), [&](auto tag) {
      activate<typename decltype(tag)::type>(attrs, out.values<typename decltype(tag)::type>());
      return Ok();
    });
  });
}

struct InplaceAbnArgs {
  explicit InplaceAbnArgs(const KernelSetup& op)
      : y(op.input("Y")),
        dy(op.input("Y@GRAD")),
        scale(op.input("Scale")),
        bias(op.input("Bias")),
        saved_variance(op.input("SavedVariance")),
        variance(op.input(op.input("Variance") ? "Variance" : "VarianceOut")),
        dx(op.output("X@GRAD")),
        dscale(op.output("Scale@GRAD")),
        dbias(op.output("Bias@GRAD")) {}
  ArgIndex y, dy, scale, bias, saved_variance, variance;
  ArgIndex dx, dscale, dbias;
};

// The normalized X, from Y, and the gradient before the activation.
template <typename T>
void restore(const InplaceAbnAttrs& attrs, const ChannelLayout& l, const T* y, const T* dy,
             const T* scale, const T* bias, T* normal, T* slope) {
  for (int64_t i = 0; i < l.outer * l.channels * l.inner; ++i) {
    const int64_t c = i / l.inner % l.channels;
    const auto [before, gradient] = undo(attrs, y[i]);
    const T shifted = bias == nullptr ? before : before - bias[c];
    normal[i] = scale == nullptr ? shifted : shifted / scale[c];
    slope[i] = dy[i] * gradient;
  }
}

template <typename T>
Status run_gradient(const KernelContext& ctx, const InplaceAbnArgs& args,
                    const InplaceAbnAttrs& attrs) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const y, needed(ctx, args.y, "Y"));
  const Tensor& dy = *ctx.find_in(args.dy);
  MILLRACE_RETURN_IF_ERROR(check_alike(*y, "Y", dy, "Y@GRAD"));
  if (y->rank() < 2) return ctx.error("Y must have at least 2 dims, found {}", describe(*y));
  const ChannelLayout l(y->dims(), attrs.channels_last);
  const int64_t n = l.channels;
  const int64_t all = y->numel();
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory,
                            ctx.device().scratch(static_cast<size_t>(2 * all + 8 * n) * sizeof(T)));
  T* const normal = reinterpret_cast<T*>(memory);
  T* const slope = normal + all;
  T* const small = slope + all;
  BatchNormGrad<T> g{};
  const T* bias = nullptr;
  MILLRACE_ASSIGN_OR_RETURN(g.scale, channel_values<T>(ctx.find_in(args.scale), "Scale", n));
  MILLRACE_ASSIGN_OR_RETURN(bias, channel_values<T>(ctx.find_in(args.bias), "Bias", n));
  restore(attrs, l, y->data<T>(), dy.data<T>(), g.scale, bias, normal, slope);
  // X is known in normalized form only: uses batch_norm's formulas with mean 0 and deviation 1, and
  // multiplies the factor of dx by the true deviation.
  MILLRACE_ASSIGN_OR_RETURN(
      const T* const given,
      needed_values<T>(ctx, attrs.global ? args.variance : args.saved_variance,
                       attrs.global ? "Variance" : "SavedVariance", n));
  T* const ones = small + 3 * n;
  T* const factor = small + 4 * n;
  T* const zeros = small + 5 * n;
  std::fill_n(ones, n, T{1});
  std::fill_n(zeros, n, T{0});
  for (int64_t c = 0; c < n; ++c) {
    const T deviation =
        attrs.global ? T{1} / std::sqrt(given[c] + static_cast<T>(attrs.epsilon)) : given[c];
    factor[c] = g.scale == nullptr ? deviation : deviation * g.scale[c];
  }
  g.x = normal;
  g.dy = slope;
  g.scale = factor;
  g.mean = zeros;
  g.deviation = ones;
  g.work = small;
  g.constant_statistics = attrs.global;
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, result_like(ctx, args.dx, *y));
  if (dx != nullptr) g.dx = dx->data<T>();
  MILLRACE_ASSIGN_OR_RETURN(g.dscale,
                            channel_results<T>(ctx.find_out(args.dscale), "Scale@GRAD", n));
  MILLRACE_ASSIGN_OR_RETURN(g.dbias, channel_results<T>(ctx.find_out(args.dbias), "Bias@GRAD", n));
  if (g.dscale == nullptr) g.dscale = small + 6 * n;
  if (g.dbias == nullptr) g.dbias = small + 7 * n;
  if (l.of_channel() == 0) return Ok();
  l.for_channels(ctx.device(),
                 [&](int64_t begin, int64_t end) { batch_norm_gradient(g, l, begin, end); });
  return Ok();
}

StatusOr<Kernel> inplace_abn_grad(const KernelSetup& op) {
  if (op.attr<bool>("fuse_with_relu")) {
    return Status(StatusCode::kUnimplemented,
                  "inplace_abn with attribute 'fuse_with_relu' has no gradient");
  }
  MILLRACE_ASSIGN_OR_RETURN(const InplaceAbnAttrs attrs, read_attrs(op));
  const InplaceAbnArgs args(op);
  return Kernel([args, attrs](const KernelContext& ctx) -> Status {
    return for_gradient<FloatTypes>(
        ctx, args.dy, {args.dx, args.dscale, args.dbias},
        [&](auto tag) { return run_gradient<typename decltype(tag)::type>(ctx, args, attrs); });
  });
}

}  // namespace
}  // namespace inplace_abn_kernels

void add_nn_inplace_abn(KernelRegistry& registry) {
  using namespace inplace_abn_kernels;
  registry.add("inplace_abn", inplace_abn);
  registry.add("inplace_abn_grad", inplace_abn_grad);
}

}  // namespace millrace::kernels
