#pragma once

#include <span>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

namespace millrace::ps {

/// Merges values of one var into the first of them, element by element; of selected rows, row by
/// row, so that each row occurs once.
///
/// \param average      divide by the number of values; integers (counters) are never divided
/// \param adds_up_rows  false: rows stay behind each other, for a receiver that adds them up
/// Errors: kExecution for values that do not fit together, or of a kind or element type that cannot
/// be added; kResource.
Status merge_values(std::span<Value> values, bool average, bool adds_up_rows = true);

/// Copies a tensor or selected rows into memory that `to` may have from before. Errors: kResource;
/// kInvalidArgument for another kind of value.
Status copy_value(const Value& from, Value& to);

}  // namespace millrace::ps
