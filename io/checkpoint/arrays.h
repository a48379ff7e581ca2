#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/state.h"

/// Tensor arrays (LOD_TENSOR_ARRAY) in files that hold only tensors: each element that was written
/// is a separate tensor, named by array_element_name().
namespace millrace::io {

/// "<array>[<index>]".
std::string array_element_name(std::string_view array, size_t index);

/// A state in which arrays have been replaced by their elements.
struct FlatState {
  LocalState state;
  std::deque<Value> elements;       ///< values of the new tensors; views of the same memory
  std::vector<StoredArray> arrays;  ///< sorted by name
};

/// Replaces arrays by their elements. The state must outlive the result. Errors: kInvalidArgument
/// with the var for an array that is marked as a part.
StatusOr<FlatState> flatten(const LocalState& state);

/// All tensors of a value, in order: the tensor itself, the values of selected rows, or the
/// elements of an array that were written.
std::vector<Tensor*> tensors_of(Value& value);
std::vector<const Tensor*> tensors_of(const Value& value);
/// Total size in bytes of these tensors.
uint64_t tensor_bytes(const Value& value);

}  // namespace millrace::io
