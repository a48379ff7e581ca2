#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace millrace::diff {

/// Pairs (index in a, index in b) of a longest common subsequence of two lists of keys, ascending.
///
/// Equal heads and tails cost linear time. If the remainder is above the bound of the table (4
/// million cells), only keys that occur once in both lists are paired. The result is then a common
/// subsequence, but not always a longest one.
std::vector<std::pair<size_t, size_t>> align(const std::vector<uint64_t>& a,
                                             const std::vector<uint64_t>& b);

}  // namespace millrace::diff
