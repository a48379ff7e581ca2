#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/scalar.h"
#include "kernels/cpu/unary.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

struct Clip {
  double low;
  double high;
  static constexpr bool kIntegers = true;
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    const T above = x < static_cast<T>(low) ? static_cast<T>(low) : x;
    return above > static_cast<T>(high) ? static_cast<T>(high) : above;
  }
  template <typename T>
  T grad(T x, T dout) const {
    return x > static_cast<T>(low) && x < static_cast<T>(high) ? dout : T(0);
  }
};

// Bounds of one run: attributes, or the tensors that replace them.
struct ClipBounds {
  ArgIndex low_arg;
  ArgIndex high_arg;
  Clip fixed;
  explicit ClipBounds(const KernelSetup& op)
      : low_arg(op.input("Min")),
        high_arg(op.input("Max")),
        fixed{op.attr<float>("min"), op.attr<float>("max")} {}

  [[nodiscard]] StatusOr<Clip> read(const KernelContext& ctx) const {
    Clip clip = fixed;
    if (const Tensor* const low = ctx.find_in(low_arg)) {
      MILLRACE_ASSIGN_OR_RETURN(clip.low, first_number(*low, "Min"));
    }
    if (const Tensor* const high = ctx.find_in(high_arg)) {
      MILLRACE_ASSIGN_OR_RETURN(clip.high, first_number(*high, "Max"));
    }
    if (clip.low > clip.high)
      return ctx.error("the lower bound is {}, which is above the upper one {}", clip.low,
                       clip.high);
    return clip;
  }
};

StatusOr<Kernel> clip_kernel(const KernelSetup& op) {
  return Kernel(
      [bounds = ClipBounds(op), args = detail::value_args(op)](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const Clip formula, bounds.read(ctx));
        const auto* const rows = ctx.in_value(args.v).get_if<SelectedRows>();
        if (rows == nullptr)
          return detail::run_unary(ctx, args, detail::kValueLoops<Clip>, &formula);
        // Clipping applies to the sum of a row, so duplicate rows are added up first.
        MILLRACE_ASSIGN_OR_RETURN(SelectedRows merged, merged_rows(*rows));
        auto& out = ctx.out_value(args.out).as<SelectedRows>();
        out = std::move(merged);
        return detail::run_unary_on(ctx, out.value, detail::kValueLoops<Clip>, &formula);
      });
}

StatusOr<Kernel> clip_grad(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const detail::UnaryArgs args, detail::grad_args(op, GradSource::kX));
  if (!args.out) return Kernel([](const KernelContext&) { return Ok(); });
  return Kernel([bounds = ClipBounds(op), args](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Clip formula, bounds.read(ctx));
    return detail::run_unary(ctx, args, detail::kGradLoops<Clip>, &formula);
  });
}

}  // namespace

/// clip with its gradient.
void add_math_clip(KernelRegistry& registry) {
  registry.add("clip", clip_kernel);
  registry.add("clip_grad", clip_grad);
}

}  // namespace millrace::kernels
