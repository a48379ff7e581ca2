#pragma once

#include <cstdint>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

namespace millrace::ps {

/// Cuts a value into pieces of rows. Pieces of a tensor look at its memory; selected rows are
/// copied and numbered from the begin of their piece.
///
/// \param sections  rows of each piece
/// \param pieces    receives as many values as sections; memory they have is used again
/// Errors: kExecution if the sections do not cover the rows, or a row is outside of them.
Status cut_rows(const Value& value, llvm::ArrayRef<int64_t> sections, std::vector<Value>& pieces);

/// Joins tensors on their rows into one, in memory that it has. Errors: kExecution for pieces that
/// do not fit together; kResource.
Status join_rows(llvm::ArrayRef<Value> pieces, Value& whole);

}  // namespace millrace::ps
