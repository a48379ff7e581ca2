#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/index.h"
#include "kernels/dispatch.h"
#include "ops/infer_context.h"

namespace millrace::kernels {

/// Element types that the gradients of selecting ops support.
using AddTypes = Types<float, double, Float16, Bfloat16, int32_t, int64_t>;

/// to[index[i]] += from[i] for rows of that many elements.
/// Runs on the calling thread, in the order of the index: rows that occur twice get the same sum in
/// every run.
template <typename T, typename I>
void add_rows(T* to, const T* from, const I* index, int64_t count, int64_t row) {
  for (int64_t i = 0; i < count; ++i) {
    T* const target = to + static_cast<int64_t>(index[i]) * row;
    const T* const source = from + i * row;
    for (int64_t k = 0; k < row; ++k) target[k] = static_cast<T>(target[k] + source[k]);
  }
}

/// Converts coordinates in the last dim of index to row numbers of a tensor with those dims.
/// \param index  integers [..., depth]; depth coordinates name a row of the remaining dims
/// \param dims   of the tensor that the index refers to
/// \param rows   out: one number per leading position of the index
/// \returns number of elements of a row
/// Errors: a coordinate out of range, more coordinates than dims, an index without dims.
inline StatusOr<int64_t> flat_rows(const Tensor& index, llvm::ArrayRef<int64_t> dims,
                                   const char* name, std::vector<int64_t>& rows) {
  if (index.rank() == 0 || index.dims().back() > static_cast<int64_t>(dims.size())) {
    return KernelContext::error("the last dim of {} {} must be at most the rank of {}", name,
                                describe(index), ops::dims_text(dims));
  }
  const auto depth = static_cast<size_t>(index.dims().back());
  const int64_t count = ops::dims_product(index.dims().drop_back());
  rows.resize(static_cast<size_t>(count));
  MILLRACE_RETURN_IF_ERROR(with_index(index, name, [&](const auto* at) -> Status {
    for (int64_t i = 0; i < count; ++i) {
      int64_t row = 0;
      for (size_t d = 0; d < depth; ++d, ++at) {
        const auto coordinate = static_cast<int64_t>(*at);
        if (coordinate < 0 || coordinate >= dims[d]) {
          return KernelContext::error(
              "{} has coordinate {} in dim {} at row {}, expected one of [0, {})", name, coordinate,
              d, i, dims[d]);
        }
        row = row * dims[d] + coordinate;
      }
      rows[static_cast<size_t>(i)] = row;
    }
    return Ok();
  }));
  return ops::dims_product(dims.drop_front(depth));
}

}  // namespace millrace::kernels
