#include <cmath>
#include <type_traits>

#include "kernels/cpu/elementwise/binary.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

struct Pow {
  template <typename T>
  static T value(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      // Converts to double and back, as the original does.
      return static_cast<T>(std::llrint(std::pow(static_cast<double>(x), static_cast<double>(y))));
    } else {
      return std::pow(x, y);
    }
  }
  template <typename T>
  static T grad_x(T x, T y, T dout) {
    return dout * y * std::pow(x, y - T(1));
  }
  template <typename T>
  static T grad_y(T x, T y, T dout) {
    return dout * std::log(x) * std::pow(x, y);
  }
};

// Remainder with the sign of the divisor.
struct Mod {
  static constexpr bool kDivides = true;
  template <typename T>
  static T value(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      if (y == T(-1)) return 0;  // the smallest integer with -1 traps
      const T rest = x % y;
      return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
    } else {
      const T rest = std::fmod(x, y);
      return rest != T(0) && (rest < T(0)) != (y < T(0)) ? rest + y : rest;
    }
  }
};

struct FloorDiv {
  static constexpr bool kDivides = true;
  template <typename T>
  static T value(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      if (y == T(-1)) return static_cast<T>(U(0) - static_cast<U>(x));
      const T quotient = x / y;
      return x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient;
    } else {
      return std::floor(x / y);
    }
  }
};

}  // namespace

/// Powers with their gradient, remainders, and quotients rounded down.
void add_elementwise_powers(KernelRegistry& registry) {
  registry.add("elementwise_pow", binary<Pow>);
  registry.add("elementwise_pow_grad", binary_grad<Pow>);
  registry.add("elementwise_mod", binary<Mod>);
  registry.add("elementwise_floordiv", binary<FloorDiv>);
}

}  // namespace millrace::kernels
