#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/gpu/functors/walk.h"

// Functors that combine elements over any dims, and their gradients. A formula has start(), take(x)
// for one element, both(a, b) for two results, team(t, a) for those of a team, and last(a) for the
// result; slope(x, out, dout, count) is the gradient of one element. Combined in double, so that
// the order hardly matters.
namespace millrace::gpu {

/// Ops reduce_sum and the parts of means.
struct SumOf {
  static constexpr bool kReadsOut = false;  ///< the gradient does not read the result
  static constexpr double start() { return 0; }
  static constexpr double take(float x) { return static_cast<double>(x); }
  static constexpr double both(double a, double b) { return a + b; }
  static constexpr double last(double a) { return a; }
  template <typename Team>
  static constexpr double team(const Team& t, double a) {
    return t.sum(a);
  }
  static constexpr float slope(float /*x*/, float /*out*/, float dout, float /*count*/) {
    return dout;
  }
};
/// The gradient of ops reduce_mean and mean.
struct MeanOf : SumOf {
  static constexpr float slope(float /*x*/, float /*out*/, float dout, float count) {
    return dout / count;
  }
};
/// Op squared_l2_norm.
struct SumOfSquares : SumOf {
  static constexpr double take(float x) { return static_cast<double>(x) * static_cast<double>(x); }
  static constexpr float slope(float x, float /*out*/, float dout, float /*count*/) {
    return 2.0F * dout * x;
  }
};
/// Op frobenius_norm.
struct RootOfSquares : SumOfSquares {
  static constexpr bool kReadsOut = true;  ///< the gradient reads the result
  static constexpr double last(double a) { return std::sqrt(a); }
  static constexpr float slope(float x, float out, float dout, float /*count*/) {
    return dout * x / out;
  }
};
/// Op l1_norm.
struct SumOfMagnitudes : SumOf {
  static constexpr double take(float x) { return static_cast<double>(std::abs(x)); }
  static constexpr float slope(float x, float /*out*/, float dout, float /*count*/) {
    return x > 0.0F ? dout : (x < 0.0F ? -dout : 0.0F);
  }
};
/// Op reduce_prod; as on the CPU, the gradient of an x of 0 is NaN.
struct ProductOf {
  static constexpr bool kReadsOut = true;  ///< the gradient reads the result
  static constexpr double start() { return 1; }
  static constexpr double take(float x) { return static_cast<double>(x); }
  static constexpr double both(double a, double b) { return a * b; }
  static constexpr double last(double a) { return a; }
  template <typename Team>
  static constexpr double team(const Team& t, double a) {
    return t.product(a);
  }
  static constexpr float slope(float x, float out, float dout, float /*count*/) {
    return dout * out / x;
  }
};
/// Op reduce_max.
struct LargestOf {
  static constexpr bool kReadsOut = true;  ///< the gradient reads the result
  static constexpr double start() { return -std::numeric_limits<double>::infinity(); }
  static constexpr double take(float x) { return static_cast<double>(x); }
  /// Once a NaN is met, the result is NaN.
  static constexpr double both(double a, double b) { return a > b || a != a ? a : b; }
  static constexpr double last(double a) { return a; }
  template <typename Team>
  static constexpr double team(const Team& t, double a) {
    const double nans = t.sum(a != a ? 1 : 0);
    const double most = static_cast<double>(t.max(static_cast<float>(a != a ? start() : a)));
    return nans > 0 ? std::numeric_limits<double>::quiet_NaN() : most;
  }
  /// Every element that equals the result gets the whole gradient.
  static constexpr float slope(float x, float out, float dout, float /*count*/) {
    return x == out ? dout : 0.0F;
  }
};
/// Op reduce_min, by the largest of the negatives.
struct SmallestOf : LargestOf {
  static constexpr double take(float x) { return -static_cast<double>(x); }
  static constexpr double last(double a) { return -a; }
};

/// y[row] = factor * formula over the elements of x that belong to the row.
template <typename Formula>
struct Reduce {
  const float* x;   ///< elements to combine
  float* y;         ///< results
  double* parts;    ///< [chunks, results] if there are several chunks; then y is not written
  Walk<1> kept;     ///< positions in x by result
  Walk<1> gone;     ///< the same by element of a result, to be added
  int64_t results;  ///< elements of y
  int64_t count;    ///< elements of x for each
  int64_t chunk;    ///< of them for each row; row = chunk number * results + result
  float factor;     ///< of the results
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t number = parts == nullptr ? 0 : row / results;
    const int64_t result = row - number * results;
    const float* const from = x + kept.at(result).of[0];
    const int64_t begin = number * chunk;
    const int64_t end = begin + chunk < count ? begin + chunk : count;
    double sum = Formula::start();
    for (int64_t i = team.rank(); i < end - begin; i += team.size())
      sum = Formula::both(sum, Formula::take(from[gone.at(begin + i).of[0]]));
    sum = Formula::team(team, sum);
    if (team.rank() != 0) return;
    if (parts != nullptr) {
      parts[row] = sum;
    } else {
      y[result] = static_cast<float>(Formula::last(sum)) * factor;
    }
  }
};

/// y[i] = factor * formula over the parts that Reduce has left.
template <typename Formula>
struct ReduceParts {
  const double* parts;  ///< [chunks, results]
  float* y;             ///< results
  int64_t results;      ///< number of results
  int64_t chunks;       ///< parts of each result
  float factor;         ///< of the results
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    double sum = Formula::start();
    for (int64_t i = team.rank(); i < chunks; i += team.size())
      sum = Formula::both(sum, parts[i * results + row]);
    sum = Formula::team(team, sum);
    if (team.rank() == 0) y[row] = static_cast<float>(Formula::last(sum)) * factor;
  }
};

/// The gradient of a reduction, by element of x. dx may be x.
template <typename Formula>
struct Spread {
  const float* x;     ///< null: not read
  const float* out;   ///< null: not read
  const float* dout;  ///< of the results
  float* dx;          ///< gradient of the elements
  Walk<1> walk;       ///< positions of the results
  float count;        ///< elements of each result
  constexpr void operator()(int64_t i) const {
    const int64_t at = walk.at(i).of[0];
    dx[i] = Formula::slope(x == nullptr ? 0.0F : x[i], out == nullptr ? 0.0F : out[at], dout[at],
                           count);
  }
};

/// out[i] = x[i], scaled down if the norm, whose square is given, exceeds a limit. out may be x.
struct ClipByNorm {
  const float* x;       ///< elements to combine
  const float* square;  ///< one element
  float* out;           ///< result
  float limit;          ///< largest norm that is kept
  constexpr void operator()(int64_t i) const {
    const float norm = std::sqrt(*square);
    out[i] = norm > limit ? limit / norm * x[i] : x[i];
  }
};

}  // namespace millrace::gpu
