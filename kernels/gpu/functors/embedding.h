#pragma once

#include <cstdint>

#include "kernels/gpu/functors/optimizer.h"
#include "kernels/gpu/functors/walk.h"

// Functors of tables whose rows are chosen by ids.
namespace millrace::gpu {

/// out[i, :] = table[ids[i], :], as words of any size; zeros for the padding id, and ones in all
/// bits, which is NaN, for an id that is no row: a device cannot report an error.
template <typename Word, typename Id>
struct TakeRows {
  const Word* table;  ///< [height, width]
  const Id* ids;      ///< row of the table, by row of the result
  Word* out;          ///< result
  Divider width;      ///< words of a row
  int64_t height;     ///< rows of the table
  int64_t padding;    ///< negative: none
  Word nan;           ///< all bits set
  constexpr void operator()(int64_t i) const {
    const uint32_t row = width.quotient(static_cast<uint32_t>(i));
    const auto column = static_cast<int64_t>(static_cast<uint32_t>(i) - row * width.divisor);
    const auto id = static_cast<int64_t>(ids[row]);
    if (padding >= 0 && id == padding) {
      out[i] = Word{};
    } else if (id < 0 || id >= height) {
      out[i] = nan;
    } else {
      out[i] = table[id * width.divisor + column];
    }
  }
};

/// to[row of a group, :] = sum of the group; other rows are not written.
struct PutSums {
  RowGroups groups;  ///< lines by row
  float* to;         ///< result
  constexpr void operator()(int64_t i) const {
    const auto group = static_cast<int64_t>(groups.width.quotient(static_cast<uint32_t>(i)));
    const int64_t column = i - group * groups.width.divisor;
    to[groups.rows[group] * groups.width.divisor + column] = groups.sum(group, column);
  }
};

/// to[group, :] = sum of the group.
struct GroupSums {
  RowGroups groups;  ///< lines by row
  float* to;         ///< result
  constexpr void operator()(int64_t i) const {
    const auto group = static_cast<int64_t>(groups.width.quotient(static_cast<uint32_t>(i)));
    to[i] = groups.sum(group, i - group * groups.width.divisor);
  }
};

}  // namespace millrace::gpu
