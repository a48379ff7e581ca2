#include <cmath>

#include "kernels/cpu/activation/activation.h"
#include "kernels/cpu/activation/gamma.h"
#include "kernels/cpu/unary.h"
#include "kernels/cpu/vector_math.h"

namespace millrace::kernels {
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
    const T low = x < T(eps) ? T(eps) : x;
    const T y = low > T(1) - T(eps) ? T(1) - T(eps) : low;
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

struct Square {
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

// Steps have no slope.
struct Step {
  static constexpr bool kIntegers = true;
  static constexpr GradSource kFrom = GradSource::kNothing;
  template <typename T>
  T grad(T /*v*/, T /*dout*/) const {
    return T(0);
  }
};
struct Floor : Step {
  template <typename T>
  T value(T x) const {
    if constexpr (std::is_integral_v<T>) return x;
    return static_cast<T>(std::floor(x));
  }
};
struct Ceil : Step {
  template <typename T>
  T value(T x) const {
    if constexpr (std::is_integral_v<T>) return x;
    return static_cast<T>(std::ceil(x));
  }
};
struct Round : Step {
  template <typename T>
  T value(T x) const {
    if constexpr (std::is_integral_v<T>) return x;
    return static_cast<T>(std::round(x));
  }
};
struct Trunc : Step {
  template <typename T>
  T value(T x) const {
    if constexpr (std::is_integral_v<T>) return x;
    return static_cast<T>(std::trunc(x));
  }
};

}  // namespace

void add_functions(KernelRegistry& registry) {
  add_unary<Exp>(registry, "exp", "exp_grad");
  add_unary<Expm1>(registry, "expm1", "expm1_grad");
  add_unary<Log>(registry, "log", "log_grad");
  add_unary<Log2>(registry, "log2", "log2_grad");
  add_unary<Log10>(registry, "log10", "log10_grad");
  add_unary<Log1p>(registry, "log1p", "log1p_grad");
  add_unary<Logit>(registry, "logit", "logit_grad");
  add_unary<Sqrt>(registry, "sqrt", "sqrt_grad");
  add_unary<Rsqrt>(registry, "rsqrt", "rsqrt_grad");
  add_unary<Square>(registry, "square", "square_grad");
  add_unary<Reciprocal>(registry, "reciprocal", "reciprocal_grad");
  add_unary<Erf>(registry, "erf", "erf_grad");
  add_unary<Lgamma>(registry, "lgamma", "lgamma_grad");
  add_unary<Digamma>(registry, "digamma", "digamma_grad");
  add_unary<Abs>(registry, "abs", "abs_grad");
  add_unary<Floor>(registry, "floor", "floor_grad");
  add_unary<Ceil>(registry, "ceil", "ceil_grad");
  add_unary<Round>(registry, "round", "round_grad");
  add_unary<Trunc>(registry, "trunc", "trunc_grad");
  registry.add("sign", unary<Sign>);
}

}  // namespace millrace::kernels
