#pragma once

#include <llvm/ADT/StringRef.h>

namespace millrace::kernels {

/// True if the CPU kernel of an op looks at the kind of value that an input slot holds and so takes
/// (or refuses with words of its own) selected rows, arrays and the like. All other kernels want a
/// dense tensor; the executor sees to it.
bool looks_at_kind(llvm::StringRef op_type, llvm::StringRef slot);

}  // namespace millrace::kernels
