#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "jobs/checkpoint/tensor_source.h"
#include "jobs/data/check_against.h"

namespace millrace::jobs {

/// How a value, or an element of an array, differs.
struct ValueDifference {
  std::string name;
  std::string what;  ///< "only in A", a different shape, ...; empty if elements differ
  double largest = 0;
  int64_t at = 0;     ///< element with the largest difference
  int64_t count = 0;  ///< elements beyond the tolerance
};

/// How two sources are compared.
struct CompareOptions {
  Tolerance tolerance = {0, 0};                 ///< both 0: the elements must be equal
  std::function<bool(llvm::StringRef)> wanted;  ///< selects names; empty: all
  std::function<Status()> proceed = [] {
    return Ok();
  };  ///< called before each value; its error ends the comparison
  std::function<void(uint64_t)> progress = [](uint64_t) {};  ///< receives the bytes of each value
};

/// The outcome of a comparison.
struct SourceComparison {
  std::vector<ValueDifference> differences;  ///< by name
  size_t compared = 0;                       ///< values that both sources have
};

/// Compares the values of two sources by name. NaN equals NaN, positive zero equals negative zero,
/// and an infinity equals itself only, whatever the tolerance. Holds one value of each source in
/// memory. Errors: kNotFound if neither source has a selected value; those of the sources and of
/// `options.proceed`.
StatusOr<SourceComparison> compare_sources(const TensorSource& a, const TensorSource& b,
                                           const CompareOptions& options);

}  // namespace millrace::jobs
