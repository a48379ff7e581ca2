#include "kernels/cpu/activation/gamma.h"

#include <cmath>
#include <limits>

namespace millrace::kernels {
namespace {

constexpr double kPi = 3.14159265358979323846;
// From this value on, the asymptotic series below are exact to double precision.
constexpr double kLarge = 12.0;

bool is_pole(double x) {
  return x <= 0 && x == std::floor(x);
}

// Reduces the angle to one period, so that large arguments keep their precision.
double angle(double x) {
  return kPi * (x - std::floor(x));
}

}  // namespace

double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);  // unlike std::lgamma, writes no global variable
}

// psi(x) = psi(x + 1) - 1 / x, psi(1 - x) = psi(x) + pi / tan(pi x), and the asymptotic series with
// Bernoulli numbers (Abramowitz and Stegun, 6.3.5, 6.3.7, 6.3.18).
double digamma(double x) {
  if (std::isnan(x)) return x;
  if (x == 0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
  if (is_pole(x)) return std::numeric_limits<double>::quiet_NaN();
  double shift = 0;
  if (x < 0) {
    shift = -kPi / std::tan(angle(x));
    x = 1 - x;
  }
  for (; x < kLarge; x += 1) shift -= 1 / x;
  const double z = 1 / (x * x);
  const double series =
      z *
      (1.0 / 12 -
       z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760))))));
  return shift + std::log(x) - 0.5 / x - series;
}

// Derivatives of the formulas above (6.4.6, 6.4.7, 6.4.12).
double trigamma(double x) {
  if (std::isnan(x)) return x;
  if (is_pole(x)) return std::numeric_limits<double>::infinity();
  double shift = 0;
  double factor = 1;
  if (x < 0) {
    const double s = std::sin(angle(x));
    shift = kPi * kPi / (s * s);
    factor = -1;
    x = 1 - x;
  }
  double sum = 0;
  for (; x < kLarge; x += 1) sum += 1 / (x * x);
  const double z = 1 / (x * x);
  const double series =
      1.0 / 6 -
      z * (1.0 / 30 - z * (1.0 / 42 - z * (1.0 / 30 - z * (5.0 / 66 - z * (691.0 / 2730)))));
  return shift + factor * (sum + 1 / x + 0.5 * z + z / x * series);
}

}  // namespace millrace::kernels
