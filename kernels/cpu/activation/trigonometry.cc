#include <cmath>

#include "kernels/cpu/unary.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// All gradients are computed from x.
struct FromX {
  static constexpr GradSource kFrom = GradSource::kX;
};

struct Sin : FromX {
  template <typename T>
  T value(T x) const {
    return std::sin(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout * std::cos(x);
  }
};
struct Cos : FromX {
  template <typename T>
  T value(T x) const {
    return std::cos(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return -dout * std::sin(x);
  }
};
struct Tan : FromX {
  template <typename T>
  T value(T x) const {
    return std::tan(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    const T c = std::cos(x);
    return dout / (c * c);
  }
};
struct Asin : FromX {
  template <typename T>
  T value(T x) const {
    return std::asin(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout / std::sqrt(T(1) - x * x);
  }
};
struct Acos : FromX {
  template <typename T>
  T value(T x) const {
    return std::acos(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return -dout / std::sqrt(T(1) - x * x);
  }
};
struct Atan : FromX {
  template <typename T>
  T value(T x) const {
    return std::atan(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout / (T(1) + x * x);
  }
};
struct Sinh : FromX {
  template <typename T>
  T value(T x) const {
    return std::sinh(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout * std::cosh(x);
  }
};
struct Cosh : FromX {
  template <typename T>
  T value(T x) const {
    return std::cosh(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout * std::sinh(x);
  }
};
struct Asinh : FromX {
  template <typename T>
  T value(T x) const {
    return std::asinh(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout / std::sqrt(x * x + T(1));
  }
};
struct Acosh : FromX {
  template <typename T>
  T value(T x) const {
    return std::acosh(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout / std::sqrt(x * x - T(1));
  }
};
struct Atanh : FromX {
  template <typename T>
  T value(T x) const {
    return std::atanh(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout / (T(1) - x * x);
  }
};

}  // namespace

void add_activation_trigonometry(KernelRegistry& registry) {
  add_unary<Sin>(registry, "sin", "sin_grad");
  add_unary<Cos>(registry, "cos", "cos_grad");
  add_unary<Tan>(registry, "tan", "tan_grad");
  add_unary<Asin>(registry, "asin", "asin_grad");
  add_unary<Acos>(registry, "acos", "acos_grad");
  add_unary<Atan>(registry, "atan", "atan_grad");
  add_unary<Sinh>(registry, "sinh", "sinh_grad");
  add_unary<Cosh>(registry, "cosh", "cosh_grad");
  add_unary<Asinh>(registry, "asinh", "asinh_grad");
  add_unary<Acosh>(registry, "acosh", "acosh_grad");
  add_unary<Atanh>(registry, "atanh", "atanh_grad");
}

}  // namespace millrace::kernels
