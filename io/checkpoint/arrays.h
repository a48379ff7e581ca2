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

/// Tensor arrays (LOD_TENSOR_ARRAY) in files that hold tensors only: each element that was written
/// is a tensor of its own, named after array_element_name().
namespace millrace::io {

/// "<array>[<index>]".
std::string array_element_name(std::string_view array, size_t index);

/// A state whose arrays have become tensors.
struct FlatState {
  LocalState state;
  std::deque<Value> elements;       ///< what the new tensors are; views of the same memory
  std::vector<StoredArray> arrays;  ///< by name
};

/// The state must outlive the result. Errors: kInvalidArgument with the var for an array that is
/// said to be a part.
StatusOr<FlatState> flatten(const LocalState& state);

/// Every tensor of a value, in order: the value itself, the values of selected rows, or the
/// elements of an array that were written.
std::vector<Tensor*> tensors_of(Value& value);
std::vector<const Tensor*> tensors_of(const Value& value);
/// Bytes of all of them.
uint64_t tensor_bytes(const Value& value);

}  // namespace millrace::io
