#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <llvm/ADT/ArrayRef.h>

#include "kernels/dispatch.h"

namespace millrace::kernels {

/// Number of elements that combine_block() combines at once; they stay in the L1 cache.
inline constexpr int64_t kCombinedBlock = 1024;

/// Combines elements [begin, begin + count) of all parts, in the order of the parts, and writes
/// them to the same positions of every result. Results may also be parts: all of a block are read
/// before any is written. Elements have type T; they are combined as Compute<T> and rounded once.
/// \param op     called as op(so far, element), returns their combination
/// \param parts  at least one
/// \param count  at most kCombinedBlock
template <typename T, typename Op>
void combine_block(Op op, llvm::ArrayRef<const std::byte*> parts,
                   llvm::ArrayRef<std::byte*> results, int64_t begin, int64_t count) {
  using C = Compute<T>;
  std::array<C, kCombinedBlock> so_far;
  const T* const first = reinterpret_cast<const T*>(parts[0]) + begin;
  for (int64_t i = 0; i < count; ++i) so_far[static_cast<size_t>(i)] = static_cast<C>(first[i]);
  for (const std::byte* const part : parts.drop_front()) {
    const T* const values = reinterpret_cast<const T*>(part) + begin;
    for (int64_t i = 0; i < count; ++i) {
      C& value = so_far[static_cast<size_t>(i)];
      value = static_cast<C>(op(value, static_cast<C>(values[i])));
    }
  }
  for (std::byte* const result : results) {
    T* const out = reinterpret_cast<T*>(result) + begin;
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(so_far[static_cast<size_t>(i)]);
  }
}

}  // namespace millrace::kernels
