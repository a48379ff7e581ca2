#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/gpu/functors/activations.h"
#include "kernels/gpu/functors/broadcast.h"

// Elementwise functors for types that are rare: f64, and integers where only some ops have them.
// One functor has the formulas of a whole list and gets the number of the one to use, so that they
// cost the compilation of a few kernels.
namespace millrace::gpu {

/// A formula as a value.
template <typename F>
struct FormulaType {
  using type = F;  ///< the formula
};
/// Calls call(FormulaType) for formula `number` of the list.
template <typename... F, typename Call>
constexpr void with_formula(Formulas<F...> /*list*/, int32_t number, const Call& call) {
  int32_t next = 0;
  ((next++ == number ? call(FormulaType<F>{}) : void()), ...);
}
/// The number of a formula in a list; the size of the list if it is not there.
template <typename Formula, typename... F>
constexpr int32_t formula_number(Formulas<F...> /*list*/) {
  int32_t number = 0;
  (void)((std::is_same_v<Formula, F> ? true : (++number, false)) || ...);
  return number;
}

/// Attributes that a formula with one operand may have.
inline constexpr int kMostAttributes = 3;

/// A formula with its attributes, which are floats.
template <typename Formula>
constexpr Formula formula_with(const float* n) {
  if constexpr (std::is_empty_v<Formula>) {
    return {};
  } else if constexpr (sizeof(Formula) == sizeof(float)) {
    return {n[0]};
  } else if constexpr (sizeof(Formula) == 2 * sizeof(float)) {
    return {n[0], n[1]};
  } else {
    return {n[0], n[1], n[2]};
  }
}

/// y = f(x) in f64; with `dout`, y is the gradient of x: v and y are then the operand that the
/// formula reads, and dx. y may be one of the others.
template <typename List>
struct WideUnary {
  int32_t number;                     ///< of the formula
  float attributes[kMostAttributes];  ///< of the formula
  const double* x;                    ///< elements, or what the gradient reads; null: nothing
  const double* dout;                 ///< gradient of the result; null: the forward op
  double* y;                          ///< result
  constexpr void operator()(int64_t i) const {
    const double v = x == nullptr ? 0.0 : x[i];
    double made = 0;
    with_formula(List{}, number, [&](auto of) {
      const auto formula = formula_with<typename decltype(of)::type>(attributes);
      if (dout == nullptr) {
        made = static_cast<double>(formula.of(v));
      } else {
        made = static_cast<double>(formula.grad(v, dout[i]));
      }
    });
    y[i] = made;
  }
};

/// out[i] = x op y. out may be an operand that is not repeated.
template <typename List, typename T, typename R>
struct AnyBinary {
  const T* x;      ///< first operand
  const T* y;      ///< second operand
  R* out;          ///< result
  Walk<2> walk;    ///< positions in x and y
  int32_t number;  ///< of the formula
  constexpr void operator()(int64_t i) const {
    const auto at = walk.at(i);
    const T a = x[at.of[0]];
    const T b = y[at.of[1]];
    R made{};
    with_formula(List{}, number, [&](auto of) { made = decltype(of)::type::of(a, b); });
    out[i] = made;
  }
};

/// The gradient of an operand in f64, as BinarySlopeSum: added over the elements of the result that
/// it was used for.
template <typename List>
struct WideSlopeSum {
  int32_t number;      ///< of the formula
  bool of_y;           ///< the operand is y
  int64_t count;       ///< repetitions of each element of the operand
  Walk<3> kept;        ///< positions in x, y and dout by element of the operand
  Walk<3> gone;        ///< the same by repetition, to be added
  const double* x;     ///< first operand; null if it is not read
  const double* y;     ///< second operand; null if it is not read
  const double* dout;  ///< gradient of the result
  double* to;          ///< gradient of the operand
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    double sum = 0;
    const auto start = kept.at(row);
    for (int64_t i = team.rank(); i < count; i += team.size()) {
      const auto at = gone.at(i);
      with_formula(List{}, number, [&](auto of) {
        using Formula = typename decltype(of)::type;
        const int64_t in_x = start.of[0] + at.of[0];
        const int64_t in_y = start.of[1] + at.of[1];
        const double d = dout[start.of[2] + at.of[2]];
        sum += of_y ? slope_of<Formula, true>(x, y, in_x, in_y, d)
                    : slope_of<Formula, false>(x, y, in_x, in_y, d);
      });
    }
    sum = team.sum(sum);
    if (team.rank() == 0) to[row] = sum;
  }
};

/// A team of one thread.
struct SingleThread {
  /// As the functions of every team.
  [[nodiscard]] static constexpr int64_t rank() { return 0; }
  [[nodiscard]] static constexpr int64_t size() { return 1; }
  static constexpr double sum(double x) { return x; }
};
/// A functor of rows that are too short for a team.
template <typename RowFunctor>
struct ByOneThread {
  RowFunctor rows;  ///< with its arguments
  constexpr void operator()(int64_t row) const { rows(SingleThread(), row); }
};

/// Formulas with two operands that have f64, and gradients.
using WideBinaryFormulas = Formulas<Add, Subtract, Multiply, Divide, Larger, Smaller, LargerNumber,
                                    SmallerNumber, RaiseTo>;
/// The same without gradients.
using WideQuotients = Formulas<Add, Subtract, Multiply, Divide, Larger, Smaller, LargerNumber,
                               SmallerNumber, RaiseTo, Modulo, FloorDivide>;
/// Of integers, in addition to those that Binary has.
using IntegerFormulas =
    Formulas<Divide, LargerNumber, SmallerNumber, RaiseTo, Modulo, FloorDivide, And, Or, Xor>;
/// Tests.
using Comparisons = Formulas<Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual>;

}  // namespace millrace::gpu
