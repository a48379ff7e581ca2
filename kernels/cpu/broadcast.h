#pragma once

#include <cstdint>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/var.h"
#include "kernels/cpu/nest.h"

namespace millrace::kernels {

/// Operands of a broadcast op by their number in a nest.
inline constexpr size_t kOfX = 0;
inline constexpr size_t kOfY = 1;
inline constexpr size_t kOfOut = 2;

/// How two operands walk through the result of an elementwise op: offsets are those of X, Y and the
/// result, in elements.
using BroadcastNest = Nest<3>;

/// The nest of operands of these dims. The smaller one starts at dim axis of the larger one (-1:
/// ends with it), its trailing dims of 1 may stick out, and dims of 1 are stretched; the rule is
/// that of ops::broadcast_dims(). Errors: kExecution if the dims do not go together.
StatusOr<BroadcastNest> broadcast_nest(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> y,
                                       int64_t axis);

/// The nest of the last pair of dims, made anew when they change. Copies start with what they have.
class BroadcastCache {
 public:
  /// Errors: as broadcast_nest().
  StatusOr<const BroadcastNest*> get(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> y,
                                     int64_t axis);

 private:
  bool filled_ = false;
  Dims x_;
  Dims y_;
  BroadcastNest nest_;
};

}  // namespace millrace::kernels
