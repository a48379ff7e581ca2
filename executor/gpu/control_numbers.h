#pragma once

#include <llvm/ADT/DenseSet.h>

#include "framework/op.h"
#include "framework/program.h"

namespace millrace::executor {

/// The whole numbers and conditions of a program that control flow reads: conditions of loops and
/// branches, indices of arrays, masks of selections, and the counters that these are computed from.
/// Ops that compute them run on the CPU, because reading one from a GPU would wait for all work
/// that is queued there. Thread-safety: concurrent readers.
class ControlNumbers {
 public:
  /// Looks for them in all blocks.
  explicit ControlNumbers(const Program& program);
  /// True if the op computes such a number, from few numbers: it costs nothing on the CPU.
  [[nodiscard]] bool contains(const Op& op) const;

 private:
  /// Adds the numbers that an op reads from others. \returns true if there was a new one
  bool add_inputs(const Op& op);

  llvm::DenseSet<NameId> names_;
};

}  // namespace millrace::executor
