#pragma once

#include <cstdint>
#include <random>
#include <utility>

#include <llvm/ADT/ArrayRef.h>

namespace millrace::tools {

/// Brings the rows of an epoch into another order, which depends on the order before, the seed and
/// the number of the epoch (from 1) only.
inline void shuffle_rows(llvm::MutableArrayRef<int64_t> order, uint64_t seed, int64_t epoch) {
  std::mt19937_64 random(seed + static_cast<uint64_t>(epoch));
  // not std::shuffle, whose result the standard leaves open
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
}

}  // namespace millrace::tools
