#pragma once

#include <cstdint>
#include <string>

#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringRef.h>

#include "framework/program.h"

namespace millrace::ops {

/// The counters of generated names: key "fc" yields "fc_0", "fc_1", ...; key "fc_0.tmp" yields
/// "fc_0.tmp_0". One object serves a main program and its startup program.
///
/// A serialized program does not keep the counters of the process that built it; continue_after()
/// derives them from the names of its vars. Thread-safety: none.
class UniqueNames {
 public:
  /// "<key>_<n>", n counting from 0 for each key.
  std::string next(llvm::StringRef key);
  /// Makes next() skip each "<key>_<n>", and smaller numbers, that is a var name of the program or
  /// the part of one before a dot. Cost: linear in the names.
  void continue_after(const Program& program);

 private:
  void note(llvm::StringRef name);

  llvm::StringMap<int64_t> counters_;  // never iterated, so its order does not matter
};

}  // namespace millrace::ops
