#pragma once

#include <llvm/ADT/StringRef.h>

namespace millrace::ops {

/// True for functions of one number that elementwise_chain runs, as it runs their gradients and
/// scale.
bool is_chain_function(llvm::StringRef type);
/// True for functions of two numbers that it runs.
bool is_chain_operator(llvm::StringRef type);

}  // namespace millrace::ops
