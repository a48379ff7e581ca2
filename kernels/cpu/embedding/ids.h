#pragma once

#include <cstdint>

#include "kernels/cpu/index.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

/// Errors: an id outside [0, rows) other than the padding id. A negative padding id means none.
/// \param ids      int32 or int64
/// \param padding  id whose row is zeros; it need not be in the table
template <typename I>
Status check_ids(const I* ids, int64_t count, int64_t rows, int64_t padding) {
  if (padding < 0) return check_range(ids, count, rows, "Ids");
  for (int64_t i = 0; i < count; ++i) {
    const auto id = static_cast<int64_t>(ids[i]);
    if (id != padding && (id < 0 || id >= rows)) {
      return KernelContext::error("Ids has {} at {}, expected a number in [0, {})", id, i, rows);
    }
  }
  return Ok();
}

}  // namespace millrace::kernels
