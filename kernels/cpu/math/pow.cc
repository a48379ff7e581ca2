#include <cmath>

#include "kernels/cpu/scalar.h"
#include "kernels/cpu/unary.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace pow_kernels {
namespace {

struct PowPower {
  double factor;
  static constexpr bool kIntegers = true;
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(std::pow(static_cast<double>(x), factor));
    } else {
      return std::pow(x, static_cast<T>(factor));
    }
  }
  template <typename T>
  T grad(T x, T dout) const {
    const PowPower below{factor - 1};
    return dout * static_cast<T>(factor) * below.value(x);
  }
};

// The exponent used by squared norms.
struct PowSquare {
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return x * x;
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout * T(2) * x;
  }
};

StatusOr<Kernel> make(const KernelSetup& op, const detail::UnaryArgs& args,
                      const detail::UnaryLoops& any, const detail::UnaryLoops& square) {
  const ArgIndex given = op.input("FactorTensor");
  const double fixed = op.attr<float>("factor");
  return Kernel([=](const KernelContext& ctx) -> Status {
    PowPower formula{fixed};
    if (const Tensor* const factor = ctx.find_in(given)) {
      MILLRACE_ASSIGN_OR_RETURN(formula.factor, first_number(*factor, "FactorTensor"));
    }
    const DType dtype = ctx.find_in(args.v) == nullptr ? DType::kFloat32 : ctx.in(args.v).dtype();
    const bool floats = dtype != DType::kInt32 && dtype != DType::kInt64;
    return detail::run_unary(ctx, args, formula.factor == 2 && floats ? square : any, &formula);
  });
}

StatusOr<Kernel> pow(const KernelSetup& op) {
  return make(op, detail::value_args(op), detail::kValueLoops<PowPower>,
              detail::kValueLoops<PowSquare>);
}

StatusOr<Kernel> pow_grad(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(const detail::UnaryArgs args, detail::grad_args(op, GradSource::kX));
  if (!args.out) return Kernel([](const KernelContext&) { return Ok(); });
  return make(op, args, detail::kGradLoops<PowPower>, detail::kGradLoops<PowSquare>);
}

}  // namespace
}  // namespace pow_kernels

/// pow with its gradient.
void add_math_pow(KernelRegistry& registry) {
  using namespace pow_kernels;
  registry.add("pow", pow);
  registry.add("pow_grad", pow_grad);
}

}  // namespace millrace::kernels
