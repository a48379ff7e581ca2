#pragma once

#include <vector>

#include "kernels/gpu/ops/args.h"

namespace millrace::gpu {

/// One of the matrices that are joined, or that a wide matrix is cut into.
struct Part {
  const std::byte* data;  ///< null: zeros when joined, skipped when cut
  int64_t columns;
};
/// Joins matrices with the same number of rows side by side, or cuts a wide matrix into them. One
/// launch does 32 parts.
/// \param cuts   false: writes `whole`; true: writes the parts
/// \param bytes  of an element
/// Errors: rejects 2^31 elements or more, or elements of another size than 1, 2, 4 or 8.
Status run_parts(Device& device, bool cuts, const std::vector<Part>& parts, int64_t rows,
                 int64_t bytes, std::byte* whole);

}  // namespace millrace::gpu
