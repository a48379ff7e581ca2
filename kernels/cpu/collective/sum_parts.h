#pragma once

#include <cstddef>
#include <cstdint>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/types.h"

namespace millrace::kernels {

/// Adds up parts element by element, in the given order, and writes the sum to every result.
/// Results may also be parts. 16-bit floats are added in float and rounded once.
///
/// \param parts    at least one
/// \param count    number of elements of each part and result
/// Errors: kUnimplemented for an element type that is no number.
Status sum_parts(DType dtype, llvm::ArrayRef<const std::byte*> parts,
                 llvm::ArrayRef<std::byte*> results, int64_t count);

}  // namespace millrace::kernels
