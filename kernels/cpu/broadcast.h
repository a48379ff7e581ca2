#pragma once

#include <cstdint>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/var.h"
#include "kernels/cpu/nest.h"

namespace millrace::kernels {

/// Index of each operand of a broadcast op in the nest.
inline constexpr size_t kOfX = 0;
inline constexpr size_t kOfY = 1;
inline constexpr size_t kOfOut = 2;

/// How an elementwise op walks through two operands and the result: offsets into X, Y and the
/// result, in elements.
using BroadcastNest = Nest<3>;

/// The nest for operands of these dims. The smaller operand starts at dim `axis` of the larger one
/// (-1: both end at the same dim). Its trailing dims of 1 may extend past the larger operand, and
/// dims of 1 are repeated. The rule is that of ops::broadcast_dims(). Errors: kExecution if the
/// dims cannot be broadcast.
StatusOr<BroadcastNest> broadcast_nest(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> y,
                                       int64_t axis);

/// Caches the nest of the last pair of dims and rebuilds it when the dims change. Copies start with
/// the cached nest.
class BroadcastCache {
 public:
  /// Errors: as broadcast_nest().
  StatusOr<const BroadcastNest*> get(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> y,
                                     int64_t axis);

 private:
  bool filled_ = false;  ///< nest_ is for x_, y_
  Dims x_;               ///< dims of the last call
  Dims y_;
  BroadcastNest nest_;  ///< pairs their elements
};

}  // namespace millrace::kernels
