#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "framework/base/status.h"
#include "kernels/cpu/nest.h"
#include "kernels/cpu/sums.h"
#include "kernels/device.h"

/// Reductions over any dims. A rule is an empty struct:
///
///   struct Sum {
///     template <typename T> static T start();             // neutral element
///     template <typename T> static T map(T x);            // of each element
///     template <typename T> static T combine(T a, T b);   // of two results
///   };
namespace millrace::kernels {

/// Index of each array in the nest of a reduction.
inline constexpr size_t kIn = 0;
inline constexpr size_t kReduced = 1;
using ReduceNest = Nest<2>;

/// Identity map, for rules that combine elements unchanged.
struct AsIs {
  template <typename T>
  static T map(T x) {
    return x;
  }
};
/// Rules of the ops.
struct Sum : AsIs {
  template <typename T>
  static T start() {
    return T(0);
  }
  template <typename T>
  static T combine(T a, T b) {
    return a + b;
  }
};
/// squared_l2_norm, frobenius_norm (the op takes the root) and clip_by_norm.
struct SumOfSquares : Sum {
  template <typename T>
  static T map(T x) {
    return x * x;
  }
};
/// l1_norm.
struct SumOfMagnitudes : Sum {
  template <typename T>
  static T map(T x) {
    return x < T(0) ? -x : x;
  }
};
/// reduce_prod.
struct Product : AsIs {
  template <typename T>
  static T start() {
    return T(1);
  }
  template <typename T>
  static T combine(T a, T b) {
    return a * b;
  }
};
/// The neutral element of a maximum, and of a minimum.
template <typename T>
constexpr T kLowest = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                           : std::numeric_limits<T>::lowest();
template <typename T>
constexpr T kHighest = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                            : std::numeric_limits<T>::max();
// Once a NaN is met, the result is NaN.
struct Max : AsIs {
  template <typename T>
  static T start() {
    return kLowest<T>;
  }
  template <typename T>
  static T combine(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
/// As Max, with the smallest element.
struct Min : AsIs {
  template <typename T>
  static T start() {
    return kHighest<T>;
  }
  template <typename T>
  static T combine(T a, T b) {
    return a < b || a != a ? a : b;
  }
};
struct MaxMagnitude : Max {
  template <typename T>
  static T map(T x) {
    return x < T(0) ? -x : x;
  }
};
struct MinMagnitude : Min {
  template <typename T>
  static T map(T x) {
    return x < T(0) ? -x : x;
  }
};

/// Reduces count contiguous elements.
/// The order of the combinations depends on count only (combine_mapped()).
template <typename Rule, typename T>
T reduce_run(const T* values, int64_t count) {
  return combine_mapped(
      values, count, Rule::template start<T>(), [](T x) { return Rule::template map<T>(x); },
      [](T a, T b) { return Rule::template combine<T>(a, b); });
}

/// Reduces count elements on the threads of the device. The result does not depend on the number of
/// threads: blocks of kGrain elements are reduced first, then their results, and the blocks do not
/// depend on the threads either. Errors: kResource.
template <typename Rule, typename T>
StatusOr<T> reduce_all(CpuDevice& device, const T* values, int64_t count) {
  if (count <= kGrain) return reduce_run<Rule>(values, count);
  // one result per block, whichever thread computes it
  const int64_t parts = (count + kGrain - 1) / kGrain;
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory,
                            device.scratch(static_cast<size_t>(parts) * sizeof(T), 3));
  T* const totals = reinterpret_cast<T*>(memory);
  device.parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      totals[k] = reduce_run<Rule>(values + k * kGrain, std::min(kGrain, count - k * kGrain));
  });
  return combine_lanes(totals, parts, Rule::template start<T>(),
                       [](T a, T b) { return Rule::template combine<T>(a, b); });
}

/// Writes out_count results; the nest maps elements to results. Uses scratch slot 3.
/// \param nest  from elements of `in` (kIn) to results (kReduced), with stride 0 along reduced dims
/// Errors: kResource.
template <typename Rule, typename T>
Status reduce(CpuDevice& device, const ReduceNest& nest, const T* in, T* out, int64_t out_count) {
  if (out_count == 1 && nest.levels().size() <= 1) {
    MILLRACE_ASSIGN_OR_RETURN(*out, (reduce_all<Rule, T>(device, in, nest.count())));
    return Ok();
  }
  if (out_count == nest.count()) {  // nothing to combine; out may be the same as in
    for (int64_t i = 0; i < out_count; ++i) out[i] = Rule::template map<T>(in[i]);
    return Ok();
  }
  std::fill_n(out, out_count, Rule::template start<T>());
  // the innermost level is reduced to one result; otherwise rows are combined element by element
  const bool sideways = nest.run_stride()[kReduced] == 0;
  nest.parallel_runs(device, kReduced, [&](const ReduceNest::Offsets& at, int64_t count) {
    const T* const from = in + at[kIn];
    T* const to = out + at[kReduced];
    if (sideways) {
      *to = Rule::template combine<T>(*to, reduce_run<Rule>(from, count));
    } else {
      for (int64_t i = 0; i < count; ++i)
        to[i] = Rule::template combine<T>(to[i], Rule::template map<T>(from[i]));
    }
  });
  return Ok();
}

}  // namespace millrace::kernels
