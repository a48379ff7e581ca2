#pragma once

#include <string>

#include "executor/executor.h"
#include "framework/base/status.h"

namespace millrace::tools {

/// How far results may be from what is expected: |a - b| <= atol + rtol * |b|, element by element.
struct Tolerance {
  double rtol = 1e-5;
  double atol = 1e-8;
};

/// What a comparison says.
struct CheckResult {
  bool same = true;
  std::string text;  ///< a line an array: largest difference and where, or what does not fit
};

/// Compares results with arrays that were saved earlier, by name. Names that are only in the
/// results are left out; dims and kinds of element (whole numbers, others) must agree. NaN equals
/// NaN.
CheckResult check_against(const executor::NamedValues& results,
                          const executor::NamedValues& expected, const Tolerance& tolerance);

}  // namespace millrace::tools
