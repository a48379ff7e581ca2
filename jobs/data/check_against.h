#pragma once

#include <string>

#include "executor/executor.h"
#include "framework/base/status.h"

namespace millrace::jobs {

/// Allowed difference between results and expected values: |a - b| <= atol + rtol * |b|, per
/// element.
struct Tolerance {
  double rtol = 1e-5;
  double atol = 1e-8;
};

/// The outcome of a comparison.
struct CheckResult {
  bool same = true;
  /// A line per array: largest difference and its position, or what does not match.
  std::string text;
};

/// Compares results with arrays that were saved earlier, by name. Results without an expected array
/// are ignored; not to expect any array is a difference. Dims and kinds of elements (integers and
/// bool, or floats) must agree, and the LoD if one is expected. Integers are compared exactly. NaN
/// equals NaN. Arrays of tensors and complex numbers cannot be compared and count as different.
/// Thread-safety: pure.
CheckResult check_against(const executor::NamedValues& results,
                          const executor::NamedValues& expected, const Tolerance& tolerance);

/// The same with the expected arrays of a file: an npz, or an npy for the only result.
/// Errors: those of the readers; kUsage for an npy and another number of results than one.
StatusOr<CheckResult> check_against_file(const executor::NamedValues& results,
                                         const std::string& path, const Tolerance& tolerance);

}  // namespace millrace::jobs
