#include "kernels/gpu/ops/broadcast.h"

namespace millrace::gpu {

StatusOr<Broadcast> broadcast_of(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> y,
                                 int64_t axis) {
  StatusOr<kernels::BroadcastNest> nest = kernels::broadcast_nest(x, y, axis);
  if (!nest.ok()) return refuse("{}", nest.status().message());
  return Broadcast{*std::move(nest)};
}

StatusOr<Walk<2>> Broadcast::walk() const {
  Box<2> box;
  for (const auto& level : nest.levels())
    box.push(level.size, {level.stride[kernels::kOfX], level.stride[kernels::kOfY]});
  return box.walk();
}

StatusOr<Repetitions> repetitions_of(const Broadcast& b, bool of_y) {
  Box<3> kept;
  Box<3> gone;
  Repetitions made;
  for (const auto& level : b.nest.levels()) {
    const bool stays = level.stride[of_y ? kernels::kOfY : kernels::kOfX] != 0;
    (stays ? kept : gone).push(level.size, level.stride);
    made.side_by_side = stays;  // as the innermost dim says
  }
  made.each = gone.count();
  MILLRACE_ASSIGN_OR_RETURN(made.kept, kept.walk());
  MILLRACE_ASSIGN_OR_RETURN(made.gone, gone.walk());
  return made;
}

}  // namespace millrace::gpu
