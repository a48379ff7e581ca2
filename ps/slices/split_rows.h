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
/// \param heights  rows of each slice
/// \param slices    receives one value per slice; existing memory is reused
/// Errors: kExecution if the heights do not cover the rows, or a row is outside of them.
Status split_rows(const Value& value, llvm::ArrayRef<int64_t> heights, std::vector<Value>& slices);

/// Concatenates tensors by rows, reusing the memory of `whole`. Errors: kExecution for slices of
/// different types or widths; kResource.
Status join_rows(llvm::ArrayRef<Value> slices, Value& whole);

}  // namespace millrace::ps
