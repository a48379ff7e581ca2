#pragma once

#include <cstdint>
#include <string>

#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringRef.h>

#include "framework/program.h"

namespace millrace::ops {

/// The counters behind generated names: "fc" gives "fc_0", "fc_1", ...; "fc_0.tmp" gives
/// "fc_0.tmp_0". One object serves a main program and its startup program.
///
/// A serialized program does not keep the counters of the process that built it;
/// continue_after() takes from its names what they tell. Thread-safety: none.
class UniqueNames {
 public:
  /// "<key>_<n>", n counting from 0 for each key.
  std::string next(llvm::StringRef key);
  /// Makes next() go on behind every "<key>_<n>" that ends at a dot or at the end of a var name of
  /// the program. Cost: linear in the names.
  void continue_after(const Program& program);

 private:
  void note(llvm::StringRef name);

  llvm::StringMap<int64_t> counters_;  // never walked
};

}  // namespace millrace::ops
