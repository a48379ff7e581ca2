#include <cmath>
#include <cstdlib>
#include <string>

#include "kernels/cpu/int_list.h"
#include "kernels/cpu/scalar.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

Status store_bool(const KernelContext& ctx, ArgIndex out, bool value) {
  MILLRACE_RETURN_IF_ERROR(size_output(ctx.out(out), DType::kBool, {}));
  *ctx.out(out).data<bool>() = value;
  return Ok();
}

// Floats are equal if they differ by less than this, as in the original.
constexpr double kSame = 1e-8;

template <typename T>
bool is_same(T x, T y) {
  if constexpr (std::is_same_v<T, bool> || std::is_integral_v<T>) {
    return x == y;
  } else {
    const auto a = static_cast<Compute<T>>(x);
    const auto b = static_cast<Compute<T>>(y);
    return a == b || static_cast<double>(std::abs(a - b)) < kSame;
  }
}

StatusOr<Kernel> equal_all(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex y = op.input("Y");
  const ArgIndex out = op.output("Out");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& a = ctx.in(x);
    const Tensor& b = ctx.in(y);
    if (a.dtype() != b.dtype())
      return ctx.error("X and Y must have one element type, found {} and {}", describe(a),
                       describe(b));
    bool same = a.dims() == b.dims();
    MILLRACE_RETURN_IF_ERROR(dispatch<AllTypes>(a.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; same && i < a.numel(); ++i)
        same = is_same(a.data<T>()[i], b.data<T>()[i]);
      return Ok();
    }));
    return store_bool(ctx, out, same);
  });
}

StatusOr<double> tolerance_attr(const KernelSetup& op, const char* attr) {
  const auto text = op.attr<std::string>(attr);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0))
    return op.error("attribute '{}' is '{}', expected a number of at least 0", attr, text);
  return value;
}

struct Tolerance {
  double relative = 0;
  double absolute = 0;
  bool nan = false;

  // Infinities follow from this arithmetic: any x compared with an infinite y is close.
  [[nodiscard]] bool close(double x, double y) const {
    if (std::isnan(x) || std::isnan(y)) return nan && std::isnan(x) && std::isnan(y);
    const double left = std::abs(x - y);
    const double right = absolute + relative * std::abs(y);
    return x == y || left <= right || std::abs(left - right) <= 1e-15;
  }
};

StatusOr<Kernel> allclose(const KernelSetup& op) {
  const ArgIndex x = op.input("Input");
  const ArgIndex y = op.input("Other");
  const ArgIndex rtol = op.input("Rtol");
  const ArgIndex atol = op.input("Atol");
  const ArgIndex out = op.output("Out");
  Tolerance fixed;
  MILLRACE_ASSIGN_OR_RETURN(fixed.relative, tolerance_attr(op, "rtol"));
  MILLRACE_ASSIGN_OR_RETURN(fixed.absolute, tolerance_attr(op, "atol"));
  fixed.nan = op.attr<bool>("equal_nan");
  return Kernel([=](const KernelContext& ctx) -> Status {
    Tolerance tolerance = fixed;
    if (const Tensor* const given = ctx.find_in(rtol)) {
      MILLRACE_ASSIGN_OR_RETURN(tolerance.relative, first_number(*given, "Rtol"));
    }
    if (const Tensor* const given = ctx.find_in(atol)) {
      MILLRACE_ASSIGN_OR_RETURN(tolerance.absolute, first_number(*given, "Atol"));
    }
    const Tensor& a = ctx.in(x);
    const Tensor& b = ctx.in(y);
    if (a.dtype() != b.dtype() || a.dims() != b.dims())
      return ctx.error("Other must be {} as Input, found {}", describe(a), describe(b));
    bool all = true;
    MILLRACE_RETURN_IF_ERROR(dispatch<FloatTypes>(a.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; all && i < a.numel(); ++i)
        all = tolerance.close(static_cast<double>(a.data<T>()[i]),
                              static_cast<double>(b.data<T>()[i]));
      return Ok();
    }));
    return store_bool(ctx, out, all);
  });
}

}  // namespace

/// equal_all, allclose.
void add_elementwise_all_equal(KernelRegistry& registry) {
  registry.add("equal_all", equal_all);
  registry.add("allclose", allclose);
}

}  // namespace millrace::kernels
