#include "kernels/cpu/broadcast.h"

#include <algorithm>

#include <fmt/format.h>

#include "ops/infer_context.h"
#include "ops/infer_helpers.h"

namespace millrace::kernels {
namespace {

// Stride of each dim in elements; 0 where the operand repeats.
Dims strides(llvm::ArrayRef<int64_t> dims) {
  Dims out(dims.size(), 0);
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] != 1) out[i] = stride;
    stride *= dims[i];
  }
  return out;
}

Status mismatch(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> y, int64_t axis) {
  return {StatusCode::kExecution, fmt::format("X {} and Y {} cannot be broadcast with axis {}",
                                              ops::dims_text(x), ops::dims_text(y), axis)};
}

}  // namespace

StatusOr<BroadcastNest> broadcast_nest(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> y,
                                       int64_t axis) {
  const size_t rank = std::max(x.size(), y.size());
  const size_t lower = std::min(x.size(), y.size());
  if (axis < -1 || axis > static_cast<int64_t>(rank)) return mismatch(x, y, axis);
  // With equal ranks there is nothing to align.
  const size_t start = axis == -1 ? rank - lower : static_cast<size_t>(axis);
  const auto a = ops::aligned_dims(x, x.size() < rank ? start : 0, rank);
  const auto b = ops::aligned_dims(y, y.size() < rank ? start : 0, rank);
  if (!a || !b) return mismatch(x, y, axis);
  Dims out(rank, 1);
  for (size_t i = 0; i < rank; ++i) {
    if ((*a)[i] != (*b)[i] && (*a)[i] != 1 && (*b)[i] != 1) return mismatch(x, y, axis);
    out[i] = (*a)[i] == 1 ? (*b)[i] : (*a)[i];
  }
  const Dims of_x = strides(*a);
  const Dims of_y = strides(*b);
  const Dims of_out = strides(out);
  BroadcastNest nest;
  for (size_t i = 0; i < rank; ++i) nest.add(out[i], {of_x[i], of_y[i], of_out[i]});
  return nest;
}

StatusOr<const BroadcastNest*> BroadcastCache::get(llvm::ArrayRef<int64_t> x,
                                                   llvm::ArrayRef<int64_t> y, int64_t axis) {
  if (!filled_ || x != llvm::ArrayRef<int64_t>(x_) || y != llvm::ArrayRef<int64_t>(y_)) {
    MILLRACE_ASSIGN_OR_RETURN(nest_, broadcast_nest(x, y, axis));
    x_.assign(x.begin(), x.end());
    y_.assign(y.begin(), y.end());
    filled_ = true;
  }
  return &nest_;
}

}  // namespace millrace::kernels
