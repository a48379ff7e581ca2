#pragma once

#include <cstdint>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/var.h"

namespace millrace::transpiler {

/// A run of whole rows of a variable. A row is everything after the first dimension.
struct Slice {
  int64_t offset = 0;  ///< elements of the variable before the slice
  int64_t elems = 0;
  Dims dims;  ///< rows, then the other dims of the variable
};

/// Splits one dense variable into slices of whole rows, at most max_slices.
///
/// Slices are as equal as whole rows allow. Small variables get fewer slices, so that only the last
/// slice can be below the minimum. A variable that is kept whole gives one slice.
///
/// \param dims       all dims > 0; rank 0 counts as one element
/// \param max_slices >= 1, usually the number of servers
/// \param min_elems  in elements, >= 1; fluid's default is 8192
/// \returns slices in order; sizes sum to the product of dims
/// Errors: kInvalidArgument if a dim, max_slices or min_elems is not positive, or the product
/// overflows. Thread-safety: pure. Cost: O(number of slices). Source: spec/transpiler.md section 3
/// (slice_variable of the original).
StatusOr<std::vector<Slice>> slice_variable(llvm::ArrayRef<int64_t> dims, int64_t max_slices,
                                            int64_t min_elems);

}  // namespace millrace::transpiler
