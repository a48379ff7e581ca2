#include "kernels/gpu/ops/reduce.h"

namespace millrace::gpu {

StatusOr<ReducePlan> reduction_of(llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> axes) {
  const auto rank = static_cast<int64_t>(dims.size());
  llvm::SmallVector<bool, 8> goes(dims.size(), axes.empty());
  for (const int64_t axis : axes) {
    const int64_t at = axis < 0 ? axis + rank : axis;
    if (rank == 0 && (axis == 0 || axis == -1)) continue;
    if (at < 0 || at >= rank) return refuse("axis {} of {} dims", axis, rank);
    goes[static_cast<size_t>(at)] = true;
  }
  const auto strides = row_major_strides(dims);
  llvm::SmallVector<int64_t, 8> of_result(dims.size(), 0);
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (goes[i]) continue;
    of_result[i] = step;
    step *= dims[i];
  }
  ReducePlan made;
  Box<1> kept;
  Box<1> gone;
  Box<1> results;
  for (size_t i = 0; i < dims.size(); ++i) {
    results.push(dims[i], {of_result[i]});
    if (dims[i] == 1) continue;
    (goes[i] ? gone : kept).push(dims[i], {strides[i]});
    made.side_by_side = !goes[i];  // as the innermost dim says
  }
  made.count = kept.count();
  made.each = gone.count();
  MILLRACE_ASSIGN_OR_RETURN(made.kept, kept.walk());
  MILLRACE_ASSIGN_OR_RETURN(made.gone, gone.walk());
  MILLRACE_ASSIGN_OR_RETURN(made.results, results.walk());
  return made;
}

}  // namespace millrace::gpu
