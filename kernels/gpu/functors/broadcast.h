#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/gpu/functors/walk.h"

// Functors of ops with two operands of which one may be repeated, and of their gradients. Formulas
// have of(x, y); grad_x(x, y, dout) and grad_y(x, y, dout) where there is a gradient. Those whose
// gradients read no operand say so by kReads = false.
namespace millrace::gpu {

/// The type in which T is added: integers wrap around.
template <typename T>
struct Wrapping {
  using type = std::make_unsigned_t<T>;  ///< integers
};
template <>
struct Wrapping<float> {
  using type = float;  ///< no wrap-around
};
template <>
struct Wrapping<double> {
  using type = double;  ///< no wrap-around
};

/// Op elementwise_add.
struct Add {
  static constexpr bool kReads = false;  ///< gradients need dout only
  template <typename T>
  static constexpr T of(T x, T y) {
    using U = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<U>(x) + static_cast<U>(y));
  }
  static constexpr auto grad_x(auto /*x*/, auto /*y*/, auto dout) { return dout; }
  static constexpr auto grad_y(auto /*x*/, auto /*y*/, auto dout) { return dout; }
};
/// Op elementwise_sub and minus.
struct Subtract {
  static constexpr bool kReads = false;  ///< gradients need dout only
  template <typename T>
  static constexpr T of(T x, T y) {
    using U = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<U>(x) - static_cast<U>(y));
  }
  static constexpr auto grad_x(auto /*x*/, auto /*y*/, auto dout) { return dout; }
  static constexpr auto grad_y(auto /*x*/, auto /*y*/, auto dout) { return -dout; }
};
/// Op elementwise_mul.
struct Multiply {
  static constexpr bool kReads = true;  ///< gradients read the operands
  template <typename T>
  static constexpr T of(T x, T y) {
    using U = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<U>(x) * static_cast<U>(y));
  }
  static constexpr auto grad_x(auto /*x*/, auto y, auto dout) { return dout * y; }
  static constexpr auto grad_y(auto x, auto /*y*/, auto dout) { return dout * x; }
};
/// Op elementwise_div.
struct Divide {
  static constexpr bool kReads = true;  ///< gradients read the operands
  template <typename T>
  static constexpr T of(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      // the processor rejects 0; the quotient of the smallest integer and -1 wraps around
      return y == T(-1) ? Subtract::of(T(0), x) : (y == 0 ? T(0) : static_cast<T>(x / y));
    } else {
      return x / y;
    }
  }
  static constexpr auto grad_x(auto /*x*/, auto y, auto dout) { return dout / y; }
  static constexpr auto grad_y(auto x, auto y, auto dout) { return -dout * (x / y) / y; }
};
/// Op elementwise_max: NaN if an operand is NaN; of equal operands, Y gets the gradient, as on the
/// processor and in the original.
struct Larger {
  static constexpr bool kReads = true;  ///< gradients read the operands
  template <typename T>
  static constexpr T of(T x, T y) {
    return x > y || x != x ? x : y;
  }
  static constexpr auto grad_x(auto x, auto y, auto dout) { return x > y ? dout : 0.0F; }
  static constexpr auto grad_y(auto x, auto y, auto dout) { return x <= y ? dout : 0.0F; }
};
/// Op elementwise_min, with the same rules.
struct Smaller {
  static constexpr bool kReads = true;  ///< gradients read the operands
  template <typename T>
  static constexpr T of(T x, T y) {
    return x < y || x != x ? x : y;
  }
  static constexpr auto grad_x(auto x, auto y, auto dout) { return x < y ? dout : 0.0F; }
  static constexpr auto grad_y(auto x, auto y, auto dout) { return x >= y ? dout : 0.0F; }
};
/// Of a number and NaN, the number; of equal operands, X gets the gradient.
template <bool kLarger>
struct ChosenNumber {
  static constexpr bool kReads = true;  ///< gradients read the operands
  /// True if X is the one.
  static constexpr bool is_x(auto x, auto y) { return (kLarger ? x >= y : x <= y) || y != y; }
  template <typename T>
  static constexpr T of(T x, T y) {
    return is_x(x, y) ? x : y;
  }
  static constexpr auto grad_x(auto x, auto y, auto dout) { return is_x(x, y) ? dout : 0.0F; }
  static constexpr auto grad_y(auto x, auto y, auto dout) { return is_x(x, y) ? 0.0F : dout; }
};
using LargerNumber = ChosenNumber<true>;    ///< elementwise_fmax
using SmallerNumber = ChosenNumber<false>;  ///< elementwise_fmin
/// Op elementwise_pow.
struct RaiseTo {
  static constexpr bool kReads = true;  ///< gradients read the operands
  /// Of integers through double and back, as on the processor.
  template <typename T>
  static constexpr T of(T x, T y) {
    if constexpr (std::is_floating_point_v<T>) return std::pow(x, y);
    const double raised = std::pow(static_cast<double>(x), static_cast<double>(y));
    return static_cast<T>(std::llrint(raised));
  }
  static constexpr auto grad_x(auto x, auto y, auto dout) {
    return dout * y * std::pow(x, y - 1.0F);
  }
  static constexpr auto grad_y(auto x, auto y, auto dout) {
    return dout * std::log(x) * std::pow(x, y);
  }
};

/// Op elementwise_mod: the remainder has the sign of the divisor.
struct Modulo {
  template <typename T>
  static constexpr T of(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      return y == 0 || y == T(-1) ? T(0) : turned(static_cast<T>(x % y), y);  // 0 was rejected
    } else {
      return turned(std::fmod(x, y), y);
    }
  }
  /// A remainder with the sign of the divisor.
  template <typename T>
  static constexpr T turned(T rest, T y) {
    return rest != T(0) && (rest < T(0)) != (y < T(0)) ? static_cast<T>(rest + y) : rest;
  }
};
/// Op elementwise_floordiv.
struct FloorDivide {
  template <typename T>
  static constexpr T of(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      const T quotient = Divide::of(x, y);
      const bool rounds = Modulo::of(x, y) != 0 && (x < 0) != (y < 0);
      return rounds ? static_cast<T>(quotient - 1) : quotient;
    } else {
      return std::floor(x / y);
    }
  }
};

/// Op equal.
struct Equal {
  template <typename T>
  static constexpr bool of(T x, T y) {
    return x == y;
  }
};
/// Op not_equal.
struct NotEqual {
  template <typename T>
  static constexpr bool of(T x, T y) {
    return x != y;
  }
};
/// Op less_than.
struct Less {
  template <typename T>
  static constexpr bool of(T x, T y) {
    return x < y;
  }
};
/// Op less_equal.
struct LessEqual {
  template <typename T>
  static constexpr bool of(T x, T y) {
    return x <= y;
  }
};
/// Op greater_than.
struct Greater {
  template <typename T>
  static constexpr bool of(T x, T y) {
    return x > y;
  }
};
/// Op greater_equal.
struct GreaterEqual {
  template <typename T>
  static constexpr bool of(T x, T y) {
    return x >= y;
  }
};
/// Op logical_and, of bytes that are 0 or 1, and bitwise_and.
struct And {
  template <typename T>
  static constexpr T of(T x, T y) {
    return static_cast<T>(x & y);
  }
};
/// Ops logical_or and bitwise_or.
struct Or {
  template <typename T>
  static constexpr T of(T x, T y) {
    return static_cast<T>(x | y);
  }
};
/// Ops logical_xor and bitwise_xor.
struct Xor {
  template <typename T>
  static constexpr T of(T x, T y) {
    return static_cast<T>(x ^ y);
  }
};

/// out[i] = x op y. out may be an operand that is not repeated.
template <typename Formula, typename T, typename R = T>
struct Binary {
  const T* x;    ///< first operand
  const T* y;    ///< second operand
  R* out;        ///< result, one element for each call
  Walk<2> walk;  ///< positions in x and y
  constexpr void operator()(int64_t i) const {
    const auto at = walk.at(i);
    out[i] = Formula::of(x[at.of[0]], y[at.of[1]]);
  }
};

/// The gradient of X or of Y by one element of the result, 0 operands if they are not read.
template <typename Formula, bool kOfY, typename T>
constexpr T slope_of(const T* x, const T* y, int64_t at_x, int64_t at_y, T dout) {
  T a{};
  T b{};
  if constexpr (Formula::kReads) {
    a = x[at_x];
    b = y[at_y];
  }
  if constexpr (kOfY) {
    return Formula::grad_y(a, b, dout);
  } else {
    return Formula::grad_x(a, b, dout);
  }
}

/// Gradient of an operand that is not repeated. It may be dout.
template <typename Formula, bool kOfY>
struct BinarySlope {
  const float* x;     ///< first operand
  const float* y;     ///< second operand
  const float* dout;  ///< gradient of the result
  float* to;          ///< gradient of the operand
  Walk<2> walk;       ///< positions in x and y
  constexpr void operator()(int64_t i) const {
    const auto at = walk.at(i);
    to[i] = slope_of<Formula, kOfY>(x, y, at.of[0], at.of[1], dout[i]);
  }
};

/// Gradient of an operand that is repeated: the sum over the elements of the result that its
/// element was used for.
template <typename Formula, bool kOfY>
struct BinarySlopeSum {
  const float* x;     ///< first operand
  const float* y;     ///< second operand
  const float* dout;  ///< gradient of the result
  float* to;          ///< gradient of the operand
  Walk<3> kept;       ///< positions in x, y and dout by element of the operand
  Walk<3> gone;       ///< the same by repetition, to be added
  int64_t count;      ///< repetitions
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const auto start = kept.at(row);
    double sum = 0;
    for (int64_t i = team.rank(); i < count; i += team.size()) {
      const auto at = gone.at(i);
      sum += static_cast<double>(slope_of<Formula, kOfY>(
          x, y, start.of[0] + at.of[0], start.of[1] + at.of[1], dout[start.of[2] + at.of[2]]));
    }
    sum = team.sum(sum);
    if (team.rank() == 0) to[row] = static_cast<float>(sum);
  }
};

}  // namespace millrace::gpu
