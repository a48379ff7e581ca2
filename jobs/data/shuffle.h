#pragma once

#include <cstdint>
#include <random>
#include <utility>

#include <llvm/ADT/ArrayRef.h>

namespace millrace::jobs {

/// Permutes the rows of an epoch. The result depends only on the previous order, the seed and the
/// number of the epoch (from 1).
inline void shuffle_rows(llvm::MutableArrayRef<int64_t> order, uint64_t seed, int64_t epoch) {
  std::mt19937_64 random(seed + static_cast<uint64_t>(epoch));
  // not std::shuffle, whose algorithm the standard does not specify
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
}

}  // namespace millrace::jobs
