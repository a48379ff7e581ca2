#pragma once

#include "kernels/cpu/unary.h"
#include "kernels/cpu/vector_math.h"

namespace millrace::kernels {

/// Formula of gelu with the error function, for unary.h.
struct Gelu {
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return T(0.5) * x * (T(1) + vmath::erf(x * T(0.70710678118654752440)));
  }
  template <typename T>
  T grad(T x, T dout) const {
    const T below = T(0.5) * (T(1) + vmath::erf(x * T(0.70710678118654752440)));
    const T density = T(0.39894228040143267794) * vmath::exp(T(-0.5) * x * x);
    return dout * (below + x * density);
  }
};

}  // namespace millrace::kernels
