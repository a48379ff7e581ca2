#pragma once

#include <cstdint>
#include <vector>

#include <llvm/ADT/DenseMap.h>

#include "framework/base/status.h"
#include "framework/program.h"

namespace millrace::executor {

/// Maps ops of a rewritten program to their location in the original program, so that errors name
/// locations in the program that the user knows. Rewrites change ops into others or erase them, and
/// keep blocks in place. If they insert an op directly before one of the same type, it counts as
/// part of that op.
class OriginalPlaces {
 public:
  /// Records the ops of a program that is about to be rewritten.
  void before(const Program& program);
  /// Records where they are after the rewrite.
  void after(const Program& program);

  /// The same error at the location in the original program, with a note on the op into which that
  /// op was fused; unchanged if the error is not at an op.
  [[nodiscard]] Status translate(Status status, const Program& original) const;

 private:
  llvm::DenseMap<const Op*, int64_t> index_;  ///< between before() and after()
  std::vector<std::vector<int64_t>> was_;     ///< by block and op: index before; -1 if unknown
};

}  // namespace millrace::executor
