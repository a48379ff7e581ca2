#include "kernels/gpu/ops/broadcast.h"

#include <algorithm>

#include "ops/infer_helpers.h"

namespace millrace::gpu {
namespace {

Dims strides_of_operand(llvm::ArrayRef<int64_t> dims) {
  Dims strides(dims.size(), 0);
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] != 1) strides[i] = step;
    step *= dims[i];
  }
  return strides;
}

}  // namespace

StatusOr<Broadcast> broadcast_of(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> y,
                                 int64_t axis) {
  const size_t rank = std::max(x.size(), y.size());
  const size_t lower = std::min(x.size(), y.size());
  const auto misfit = [&] {
    return refuse("operands {} and {} with axis {}", ops::dims_text(x), ops::dims_text(y), axis);
  };
  if (axis < -1 || axis > static_cast<int64_t>(rank)) return misfit();
  const size_t start = axis == -1 ? rank - lower : static_cast<size_t>(axis);
  const auto a = ops::aligned_dims(x, x.size() < rank ? start : 0, rank);
  const auto b = ops::aligned_dims(y, y.size() < rank ? start : 0, rank);
  if (!a || !b) return misfit();
  Broadcast made;
  made.dims.assign(rank, 1);
  for (size_t i = 0; i < rank; ++i) {
    if ((*a)[i] != (*b)[i] && (*a)[i] != 1 && (*b)[i] != 1) return misfit();
    made.dims[i] = (*a)[i] == 1 ? (*b)[i] : (*a)[i];
    made.count *= made.dims[i];
  }
  made.strides_x = strides_of_operand(*a);
  made.strides_y = strides_of_operand(*b);
  return made;
}

StatusOr<Walk<2>> Broadcast::walk() const {
  Box<2> box;
  for (size_t i = 0; i < dims.size(); ++i) box.push(dims[i], {strides_x[i], strides_y[i]});
  return box.walk();
}

StatusOr<Repetitions> repetitions_of(const Broadcast& b, bool of_y) {
  const auto strides = row_major_strides(b.dims);
  Box<3> kept;
  Box<3> gone;
  Repetitions made;
  for (size_t i = 0; i < b.dims.size(); ++i) {
    if (b.dims[i] == 1) continue;
    const bool stays = (of_y ? b.strides_y : b.strides_x)[i] != 0;
    (stays ? kept : gone).push(b.dims[i], {b.strides_x[i], b.strides_y[i], strides[i]});
    made.side_by_side = stays;  // as the innermost dim says
  }
  made.each = gone.count();
  MILLRACE_ASSIGN_OR_RETURN(made.kept, kept.walk());
  MILLRACE_ASSIGN_OR_RETURN(made.gone, gone.walk());
  return made;
}

}  // namespace millrace::gpu
