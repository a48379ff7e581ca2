#pragma once

#include <string>

#include <llvm/ADT/StringRef.h>

#include "framework/program.h"

namespace millrace::transpiler {

/// Declares a var in the block of `op` and returns its name: names::upgraded(base, what), with a
/// number appended if a var of that name is already visible in the block (two ops that write one
/// var).
std::string new_var(Op& op, llvm::StringRef base, llvm::StringRef what, VarSpec spec);

}  // namespace millrace::transpiler
