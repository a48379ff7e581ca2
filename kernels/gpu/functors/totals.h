#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/gpu/functors/order.h"
#include "kernels/gpu/functors/walk.h"

// Reductions whose element types or rules are rare: f64, integers, tests, norms. Type and rule are
// known when the functor runs, so that one functor serves all of them. Reals are combined in
// double, integers in i64 with wrap-around.
namespace millrace::gpu {

/// What a test looks for.
enum class ValueTest : int32_t {
  kZero,      ///< 0 or false
  kNonZero,   ///< other numbers, also NaN
  kInfinite,  ///< of both signs
  kNan,       ///< no number
  kNotFinite  ///< infinite or NaN
};

/// True if element i passes the test.
constexpr bool passes(const Elements& x, int64_t i, ValueTest test) {
  if (test == ValueTest::kZero || test == ValueTest::kNonZero)
    return (x.key(i) == 0) == (test == ValueTest::kZero);
  if (!x.is_real()) return false;
  const bool is_nan = x.key(i) == Elements::kNan;
  if (test == ValueTest::kNan) return is_nan;
  const bool is_infinite = x.is_infinite(i);
  return test == ValueTest::kInfinite ? is_infinite : is_nan || is_infinite;
}

/// out[i] = whether x[i] passes a test, or does not.
struct TestValues {
  Elements x;      ///< elements
  uint8_t* out;    ///< bool
  ValueTest test;  ///< for each element
  bool negates;    ///< true where it does not pass
  constexpr void operator()(int64_t i) const { out[i] = passes(x, i, test) != negates ? 1 : 0; }
};

/// out[row] = whether an element of the row passes a test, or none does.
struct TestRows {
  Elements x;      ///< elements
  uint8_t* out;    ///< bool
  Walk<1> kept;    ///< positions in x by result
  Walk<1> gone;    ///< the same by element of a result, to be added
  int64_t count;   ///< elements of each result
  ValueTest test;  ///< for each element
  bool negates;    ///< true if none passes
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t start = kept.at(row).of[0];
    double found = 0;
    for (int64_t i = team.rank(); i < count; i += team.size())
      found += passes(x, start + gone.at(i).of[0], test) ? 1 : 0;
    found = team.sum(found);
    if (team.rank() == 0) out[row] = (found > 0) != negates ? 1 : 0;
  }
};

/// How elements are combined.
enum class TotalRule : int32_t {
  kSum,         ///< of all elements
  kMean,        ///< sum divided by the number of elements; of integers, cut off
  kProduct,     ///< of all elements
  kLargest,     ///< NaN if an element is
  kSmallest,    ///< NaN if an element is
  kSquares,     ///< sum of squares
  kRoot,        ///< root of the sum of squares and `number`
  kMagnitudes,  ///< sum of magnitudes
  kLogSum,      ///< logarithm of the sum of exponentials
  kNorm         ///< of order `number`
};

/// The sum of the integers of a team's threads, which wraps around. Teams add doubles, which are
/// exact for halves.
template <typename Team>
constexpr int64_t sum_of_integers(const Team& team, int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  const double low = team.sum(static_cast<double>(bits & 0xFFFFFFFFU));
  const double high = team.sum(static_cast<double>(bits >> 32U));
  return static_cast<int64_t>((static_cast<uint64_t>(high) << 32U) + static_cast<uint64_t>(low));
}
/// The largest of the doubles of a team's threads; NaN if one of them is.
template <typename Team>
constexpr double largest_real(const Team& team, double value) {
  const Elements one{&value, ElementType::kF64};
  const int64_t key = largest_integer(team, one.key(0));
  if (key == Elements::kNan) return std::numeric_limits<double>::quiet_NaN();
  const int64_t sign = key < 0 ? std::numeric_limits<int64_t>::min() : 0;
  return __builtin_bit_cast(double, (key < 0 ? -key : key) | sign);
}

/// y[row] = rule over the elements of x that belong to the row.
struct Total {
  Elements x;          ///< elements to combine
  void* y;             ///< results
  ElementType y_type;  ///< f32, f64, i32 or i64
  Walk<1> kept;        ///< positions in x by result
  Walk<1> gone;        ///< the same by element of a result, to be added
  int64_t count;       ///< elements of x for each result
  TotalRule rule;      ///< how they are combined
  double number;       ///< of some rules
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t start = kept.at(row).of[0];
    if (y_type == ElementType::kI32 || y_type == ElementType::kI64) {
      const int64_t made = whole(team, start);
      if (team.rank() != 0) return;
      if (y_type == ElementType::kI64) {
        static_cast<int64_t*>(y)[row] = made;
      } else {
        static_cast<int32_t*>(y)[row] = static_cast<int32_t>(made);
      }
      return;
    }
    const double made = last(rule == TotalRule::kLogSum ? log_sum(team, start) : real(team, start));
    if (team.rank() != 0) return;
    if (y_type == ElementType::kF64) {
      static_cast<double*>(y)[row] = made;
    } else {
      static_cast<float*>(y)[row] = static_cast<float>(made);
    }
  }

 private:
  /// True for rules that choose an element.
  [[nodiscard]] constexpr bool is_extreme() const {
    return rule == TotalRule::kLargest || rule == TotalRule::kSmallest ||
           (rule == TotalRule::kNorm && (number > kLargest || number < -kLargest));
  }
  /// What is added, multiplied or compared for one element; minima are maxima of negatives.
  [[nodiscard]] constexpr double term(double v) const {
    const double size = v < 0 ? -v : v;
    switch (rule) {
      case TotalRule::kSmallest:
        return -v;
      case TotalRule::kSquares:
      case TotalRule::kRoot:
        return v * v;
      case TotalRule::kMagnitudes:
        return size;
      case TotalRule::kNorm:
        if (is_extreme() && v != v) return -kInfinity;  // skipped, as on the processor
        if (is_extreme()) return number < 0 ? -size : size;
        if (number == 0) return v != 0 ? 1 : 0;
        return number == 1 ? size : (number == 2 ? v * v : std::pow(size, number));
      default:
        return v;
    }
  }
  /// The elements of the row at `start`, combined before last().
  template <typename Team>
  [[nodiscard]] constexpr double real(const Team& team, int64_t start) const {
    double total = rule == TotalRule::kProduct ? 1 : (is_extreme() ? -kInfinity : 0);
    for (int64_t i = team.rank(); i < count; i += team.size()) {
      const double v = term(x.real(start + gone.at(i).of[0]));
      if (is_extreme()) {
        total = total > v || total != total ? total : v;
      } else {
        total = rule == TotalRule::kProduct ? total * v : total + v;
      }
    }
    if (is_extreme()) return largest_real(team, total);
    return rule == TotalRule::kProduct ? team.product(total) : team.sum(total);
  }
  /// Two passes: exponents are at most 0, so that none overflows.
  template <typename Team>
  [[nodiscard]] constexpr double log_sum(const Team& team, int64_t start) const {
    double most = -kInfinity;
    for (int64_t i = team.rank(); i < count; i += team.size()) {
      const double v = x.real(start + gone.at(i).of[0]);
      most = most > v || most != most ? most : v;
    }
    most = largest_real(team, most);
    if (most > kLargest || most < -kLargest) most = 0;  // an infinite result; no difference is NaN
    double sum = 0;
    for (int64_t i = team.rank(); i < count; i += team.size())
      sum += std::exp(x.real(start + gone.at(i).of[0]) - most);
    return most + std::log(team.sum(sum));
  }
  /// The result, once all elements are combined.
  [[nodiscard]] constexpr double last(double total) const {
    switch (rule) {
      case TotalRule::kMean:
        return total / static_cast<double>(count);
      case TotalRule::kSmallest:
        return -total;
      case TotalRule::kRoot:
        return std::sqrt(total + number);
      case TotalRule::kNorm:
        if (is_extreme()) return number < 0 ? -total : (total > 0 || total != total ? total : 0);
        if (number == 0 || number == 1) return total;
        return number == 2 ? std::sqrt(total) : std::pow(total, 1 / number);
      default:
        return total;
    }
  }
  /// The same as real() and last() for integers.
  template <typename Team>
  [[nodiscard]] constexpr int64_t whole(const Team& team, int64_t start) const {
    if (rule == TotalRule::kProduct) return whole_product(team, start);
    const bool extreme = is_extreme();
    auto total = static_cast<uint64_t>(extreme ? std::numeric_limits<int64_t>::min() : 0);
    for (int64_t i = team.rank(); i < count; i += team.size()) {
      const int64_t key = x.key(start + gone.at(i).of[0]);
      const int64_t v = rule == TotalRule::kSmallest ? ~key : key;
      if (!extreme) {
        total += static_cast<uint64_t>(v);
      } else if (v > static_cast<int64_t>(total)) {
        total = static_cast<uint64_t>(v);
      }
    }
    const auto mine = static_cast<int64_t>(total);
    if (rule == TotalRule::kSmallest) return ~largest_integer(team, mine);
    if (extreme) return largest_integer(team, mine);
    const int64_t sum = sum_of_integers(team, mine);
    return rule == TotalRule::kMean ? sum / count : sum;
  }
  /// By one thread: teams multiply doubles only.
  template <typename Team>
  [[nodiscard]] constexpr int64_t whole_product(const Team& team, int64_t start) const {
    uint64_t total = 1;
    for (int64_t i = 0; team.rank() == 0 && i < count; ++i)
      total *= static_cast<uint64_t>(x.key(start + gone.at(i).of[0]));
    return static_cast<int64_t>(total);
  }
  /// Above all numbers.
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  /// The largest number.
  static constexpr double kLargest = std::numeric_limits<double>::max();
};

/// The gradient of a total, by element of x; all f32 or all f64. dx may be x.
struct TotalSlope {
  Elements x;      ///< elements; null data: not read
  Elements out;    ///< results; null data: not read
  Elements dout;   ///< of the results
  void* dx;        ///< gradient of the elements
  Walk<1> walk;    ///< positions of the results
  int64_t count;   ///< elements of each result
  TotalRule rule;  ///< how they were combined
  double number;   ///< of some rules
  double epsilon;  ///< of kNorm: added to the power of the norm
  constexpr void operator()(int64_t i) const {
    const int64_t at = walk.at(i).of[0];
    const double made = slope(x.data == nullptr ? 0 : x.real(i),
                              out.data == nullptr ? 0 : out.real(at), dout.real(at));
    if (dout.type == ElementType::kF64) {
      static_cast<double*>(dx)[i] = made;
    } else {
      static_cast<float*>(dx)[i] = static_cast<float>(made);
    }
  }

 private:
  /// \param v  element
  /// \param y  result that it belongs to
  /// \param d  gradient of the result
  [[nodiscard]] constexpr double slope(double v, double y, double d) const {
    switch (rule) {
      case TotalRule::kMean:
        return d / static_cast<double>(count);
      case TotalRule::kProduct:
        return d * y / v;
      case TotalRule::kLargest:
      case TotalRule::kSmallest:
        return v == y ? d : 0;
      case TotalRule::kSquares:
        return 2 * d * v;
      case TotalRule::kRoot:
        return d * v / y;
      case TotalRule::kMagnitudes:
        return v > 0 ? d : (v < 0 ? -d : 0);
      case TotalRule::kLogSum:
        return d * std::exp(v - y);
      case TotalRule::kNorm:
        return d * norm_slope(v, y);
      default:
        return d;
    }
  }
  /// Of a norm; 0 at an element of 0.
  [[nodiscard]] constexpr double norm_slope(double v, double norm) const {
    const double sign = v > 0 ? 1 : (v < 0 ? -1 : 0);
    const double size = v < 0 ? -v : v;
    if (number == 0 || sign == 0) return 0;
    const double most = std::numeric_limits<double>::max();
    if (number > most || number < -most) return size == norm ? sign : 0;
    return sign * std::pow(size, number - 1) / (std::pow(norm, number - 1) + epsilon);
  }
};

/// out = x divided by the norm of its row; all f32 or all f64.
struct DivideByNorm {
  Elements x;     ///< elements
  Elements norm;  ///< results of kRoot
  void* out;      ///< may be x
  Walk<1> walk;   ///< positions of the norms
  constexpr void operator()(int64_t i) const {
    const double made = x.real(i) / norm.real(walk.at(i).of[0]);
    if (x.type == ElementType::kF64) {
      static_cast<double*>(out)[i] = made;
    } else {
      static_cast<float*>(out)[i] = static_cast<float>(made);
    }
  }
};

/// Its gradient, a row by a team: (dout - x * sum(dout * x) / norm^2) / norm.
struct DivideByNormGradient {
  Elements x;     ///< elements
  Elements norm;  ///< one for each row
  Elements dout;  ///< gradient of the result
  void* dx;       ///< may be dout
  Walk<1> kept;   ///< positions in x by row
  Walk<1> gone;   ///< the same by element of a row, to be added
  int64_t count;  ///< elements of a row
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t start = kept.at(row).of[0];
    double sum = 0;
    for (int64_t i = team.rank(); i < count; i += team.size()) {
      const int64_t at = start + gone.at(i).of[0];
      sum += x.real(at) * dout.real(at);
    }
    const double root = norm.real(row);
    const double dot = team.sum(sum) / (root * root);
    for (int64_t i = team.rank(); i < count; i += team.size()) {
      const int64_t at = start + gone.at(i).of[0];
      const double made = (dout.real(at) - x.real(at) * dot) / root;
      if (x.type == ElementType::kF64) {
        static_cast<double*>(dx)[at] = made;
      } else {
        static_cast<float*>(dx)[at] = static_cast<float>(made);
      }
    }
  }
};

}  // namespace millrace::gpu
