#pragma once

#include <cstdint>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

namespace millrace::ps {

/// Splits a value into slices of rows. Slices of a tensor are views of its memory. Selected rows
/// are copied, and row ids become relative to the first row of their slice.
///
/// \param sections  rows of each slice
/// \param pieces    receives one value per section; existing memory is reused
/// Errors: kExecution if the sections do not cover the rows, or a row is outside of them.
Status cut_rows(const Value& value, llvm::ArrayRef<int64_t> sections, std::vector<Value>& pieces);

/// Concatenates tensors by rows, reusing the memory of `whole`. Errors: kExecution for slices of
/// different types or widths; kResource.
Status join_rows(llvm::ArrayRef<Value> pieces, Value& whole);

}  // namespace millrace::ps
