#pragma once

#include <cstddef>
#include <cstdint>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/types.h"

namespace millrace::kernels {

/// How elements of several ranks are combined; the values are those of attribute `reduce_type`.
enum class Reduction { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };

/// "sum", "prod", "max" or "min".
const char* reduction_name(Reduction reduction);

/// True for the element types that reduce_parts() combines: all floats and integers.
bool is_combined(DType dtype);

/// Combines parts element by element, in the given order, and writes the combination to every
/// result. Results may also be parts. 16-bit floats are combined in float and rounded once. If an
/// element of a maximum or minimum is NaN, the result is NaN.
///
/// \param parts    at least one
/// \param count    number of elements of each part and result
/// Errors: kUnimplemented for an element type that is no number.
Status reduce_parts(DType dtype, Reduction reduction, llvm::ArrayRef<const std::byte*> parts,
                    llvm::ArrayRef<std::byte*> results, int64_t count);

}  // namespace millrace::kernels
