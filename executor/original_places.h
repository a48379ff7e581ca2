#pragma once

#include <cstdint>
#include <vector>

#include <llvm/ADT/DenseMap.h>

#include "framework/base/status.h"
#include "framework/program.h"

namespace millrace::executor {

/// Where the ops of a rewritten program stood before, so that errors name places in the program
/// that the user knows. Rewrites turn one op into another or erase it; they make none and leave
/// blocks where they are.
class OriginalPlaces {
 public:
  /// Remembers the ops of a program that is about to be rewritten.
  void before(const Program& program);
  /// Takes down what has become of them.
  void after(const Program& program);

  /// The same error at the place in the original program, with a note on the op that it has been
  /// made part of; unchanged where the error is at no op.
  [[nodiscard]] Status translate(Status status, const Program& original) const;

 private:
  llvm::DenseMap<const Op*, int64_t> index_;  ///< between before() and after()
  std::vector<std::vector<int64_t>> was_;     ///< by block and op: index before; -1 if unknown
};

}  // namespace millrace::executor
