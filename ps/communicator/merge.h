#pragma once

#include <span>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

namespace millrace::ps {

/// Merges the values of one var into the first of them, element by element. Selected rows are
/// merged row by row, so that each row occurs once.
///
/// \param average      divide by the number of values; integers (counters) are never divided
/// \param adds_up_rows  false: rows are only concatenated, for a receiver that adds up repeats
/// Errors: kExecution for values with different dims or types, or of a kind or element type that
/// cannot be added; kResource.
Status merge_values(std::span<Value> values, bool average, bool adds_up_rows = true);

/// Adds elements: to[i] += from[i].
template <typename T>
void add_elements(const T* from, T* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

/// Copies a tensor or selected rows into `to`, reusing its memory where possible. Errors:
/// kResource; kInvalidArgument for another kind of value.
Status copy_value(const Value& from, Value& to);

}  // namespace millrace::ps
