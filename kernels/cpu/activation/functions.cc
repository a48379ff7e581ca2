#include <cmath>

#include "kernels/cpu/activation/gamma.h"
#include "kernels/cpu/elementwise/stage.h"
#include "kernels/cpu/unary.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace functions {
namespace {

constexpr double kLn2 = 0.69314718055994530942;
constexpr double kLn10 = 2.30258509299404568402;
constexpr double kTwoOverSqrtPi = 1.12837916709551257390;

struct Exp {
  static constexpr GradSource kFrom = GradSource::kOut;
  template <typename T>
  T value(T x) const {
    return vmath::exp(x);
  }
  template <typename T>
  T grad(T out, T dout) const {
    return dout * out;
  }
};

struct Expm1 {
  static constexpr GradSource kFrom = GradSource::kOut;
  template <typename T>
  T value(T x) const {
    return vmath::expm1(x);
  }
  template <typename T>
  T grad(T out, T dout) const {
    return dout * out + dout;
  }
};

struct Log {
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return vmath::log(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout / x;
  }
};

struct Log2 {
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return std::log2(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout / (x * T(kLn2));
  }
};

struct Log10 {
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return std::log10(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout / (x * T(kLn10));
  }
};

struct Log1p {
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return std::log1p(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout / (x + T(1));
  }
};

struct Logit {
  float eps;
  explicit Logit(const KernelSetup& op) : eps(op.attr<float>("eps")) {}
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    const T high = x > T(1) - T(eps) ? T(1) - T(eps) : x;
    const T y = x < T(eps) ? T(eps) : high;  // also if eps is above 0.5
    return std::log(y / (T(1) - y));
  }
  template <typename T>
  T grad(T x, T dout) const {
    return x < T(eps) || x > T(1) - T(eps) ? T(0) : dout / (x * (T(1) - x));
  }
};

struct Sqrt {
  static constexpr GradSource kFrom = GradSource::kOut;
  template <typename T>
  T value(T x) const {
    return std::sqrt(x);
  }
  template <typename T>
  T grad(T out, T dout) const {
    return T(0.5) * dout / out;
  }
};

struct Rsqrt {
  static constexpr GradSource kFrom = GradSource::kOut;
  template <typename T>
  T value(T x) const {
    return T(1) / std::sqrt(x);
  }
  template <typename T>
  T grad(T out, T dout) const {
    return T(-0.5) * dout * out * out * out;
  }
};

struct FunctionsSquare {
  static constexpr bool kIntegers = true;
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return x * x;
  }
  template <typename T>
  T grad(T x, T dout) const {
    return T(2) * dout * x;
  }
};

struct Reciprocal {
  static constexpr GradSource kFrom = GradSource::kOut;
  template <typename T>
  T value(T x) const {
    return T(1) / x;
  }
  template <typename T>
  T grad(T out, T dout) const {
    return -dout * out * out;
  }
};

struct Erf {
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return vmath::erf(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout * T(kTwoOverSqrtPi) * vmath::exp(-(x * x));
  }
};

struct Lgamma {
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return static_cast<T>(log_gamma(static_cast<double>(x)));
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout * static_cast<T>(digamma(static_cast<double>(x)));
  }
};

struct Digamma {
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return static_cast<T>(digamma(static_cast<double>(x)));
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout * static_cast<T>(trigamma(static_cast<double>(x)));
  }
};

struct Abs {
  static constexpr bool kIntegers = true;
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return x < T(0) ? T(0) - x : x == T(0) ? T(0) : x;
  }
  template <typename T>
  T grad(T x, T dout) const {
    return x > T(0) ? dout : x < T(0) ? T(0) - dout : T(0);
  }
};

struct Sign {
  static constexpr bool kIntegers = true;
  template <typename T>
  T value(T x) const {
    return x > T(0) ? T(1) : x < T(0) ? T(-1) : T(0);
  }
};

// Step functions have slope 0.
struct FunctionsStep {
  static constexpr bool kIntegers = true;
  static constexpr GradSource kFrom = GradSource::kNothing;
  template <typename T>
  T grad(T /*v*/, T /*dout*/) const {
    return T(0);
  }
};
struct Floor : FunctionsStep {
  template <typename T>
  T value(T x) const {
    if constexpr (std::is_integral_v<T>) return x;
    return static_cast<T>(std::floor(x));
  }
};
struct Ceil : FunctionsStep {
  template <typename T>
  T value(T x) const {
    if constexpr (std::is_integral_v<T>) return x;
    return static_cast<T>(std::ceil(x));
  }
};
struct Round : FunctionsStep {
  template <typename T>
  T value(T x) const {
    if constexpr (std::is_integral_v<T>) return x;
    return static_cast<T>(std::round(x));
  }
};
struct Trunc : FunctionsStep {
  template <typename T>
  T value(T x) const {
    if constexpr (std::is_integral_v<T>) return x;
    return static_cast<T>(std::trunc(x));
  }
};

// Adds kernels, or the loops of chains.
template <typename Table>
void add_formulas(Table& table) {
  add_unary<Exp>(table, "exp", "exp_grad");
  add_unary<Expm1>(table, "expm1", "expm1_grad");
  add_unary<Log>(table, "log", "log_grad");
  add_unary<Log2>(table, "log2", "log2_grad");
  add_unary<Log10>(table, "log10", "log10_grad");
  add_unary<Log1p>(table, "log1p", "log1p_grad");
  add_unary<Logit>(table, "logit", "logit_grad");
  add_unary<Sqrt>(table, "sqrt", "sqrt_grad");
  add_unary<Rsqrt>(table, "rsqrt", "rsqrt_grad");
  add_unary<FunctionsSquare>(table, "square", "square_grad");
  add_unary<Reciprocal>(table, "reciprocal", "reciprocal_grad");
  add_unary<Erf>(table, "erf", "erf_grad");
  add_unary<Lgamma>(table, "lgamma", "lgamma_grad");
  add_unary<Digamma>(table, "digamma", "digamma_grad");
  add_unary<Abs>(table, "abs", "abs_grad");
  add_unary<Floor>(table, "floor", "floor_grad");
  add_unary<Ceil>(table, "ceil", "ceil_grad");
  add_unary<Round>(table, "round", "round_grad");
  add_unary<Trunc>(table, "trunc", "trunc_grad");
}

}  // namespace
}  // namespace functions

/// Powers, logarithms, rounding, error and gamma functions.
void add_activation_functions(KernelRegistry& registry) {
  using namespace functions;
  add_formulas(registry);
  registry.add("sign", unary<Sign>);
}
void add_functions(StageTable& table) {
  functions::add_formulas(table);
}

}  // namespace millrace::kernels
