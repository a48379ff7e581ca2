#pragma once

#include <llvm/ADT/StringRef.h>

namespace millrace::ops {

/// True for unary functions that elementwise_chain supports. It also supports their gradients, and
/// scale.
bool is_chain_function(llvm::StringRef type);
/// True for binary functions that elementwise_chain supports.
bool is_chain_operator(llvm::StringRef type);

}  // namespace millrace::ops
