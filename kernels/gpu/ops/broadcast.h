#pragma once

#include "kernels/cpu/broadcast.h"
#include "kernels/gpu/ops/walk.h"

namespace millrace::gpu {

/// How an elementwise op pairs the elements of X, Y and the result.
struct Broadcast {
  kernels::BroadcastNest nest;  ///< positions in X, Y and the result
  /// Elements of the result.
  [[nodiscard]] int64_t count() const { return nest.count(); }
  /// Positions in X and Y by element of the result. Errors: as Box::walk().
  [[nodiscard]] StatusOr<Walk<2>> walk() const;
};
/// Errors: rejects dims that do not fit; the CPU kernel reports them.
StatusOr<Broadcast> broadcast_of(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> y,
                                 int64_t axis);

/// The elements of an operand with the repetitions of each, as positions in X, Y and the result.
struct Repetitions {
  Walk<3> kept;               ///< by element of the operand
  Walk<3> gone;               ///< by repetition
  int64_t each = 1;           ///< repetitions
  bool side_by_side = false;  ///< adjacent elements of the operand belong to adjacent results
};
/// \param of_y  the operand is Y
/// Errors: as Box::walk().
StatusOr<Repetitions> repetitions_of(const Broadcast& b, bool of_y);

}  // namespace millrace::gpu
