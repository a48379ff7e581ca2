#pragma once

#include <cstdint>

#include <fmt/format.h>

#include "kernels/kernel.h"

namespace millrace::kernels {

/// Calls fn(pointer) with the elements of an int32 or int64 tensor. fn returns Status. Errors:
/// another element type (name is the slot for the message); errors of fn.
template <typename Fn>
Status with_index(const Tensor& index, const char* name, Fn&& fn) {
  if (index.dtype() == DType::kInt64) return fn(index.data<int64_t>());
  if (index.dtype() == DType::kInt32) return fn(index.data<int32_t>());
  return KernelContext::error("{} must be int32 or int64, found {}", name, describe(index));
}

/// Errors: an element of the index is outside [0, size); the message has the element and its
/// position.
template <typename I>
Status check_range(const I* index, int64_t count, int64_t size, const char* name) {
  uint64_t largest = 0;  // as unsigned, a negative number is a large one
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, static_cast<uint64_t>(static_cast<int64_t>(index[i])));
  if (count == 0 || largest < static_cast<uint64_t>(size)) return Ok();
  int64_t at = 0;
  while (index[at] >= 0 && static_cast<int64_t>(index[at]) < size) ++at;
  return KernelContext::error("{} has {} at {}, expected a number in [0, {})", name,
                              static_cast<int64_t>(index[at]), at, size);
}

}  // namespace millrace::kernels
