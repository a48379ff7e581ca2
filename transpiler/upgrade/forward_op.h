#pragma once

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/program.h"

namespace millrace::transpiler {

/// The op whose gradient `gradient` computes: an op of that type whose vars are those that the
/// gradient op names. It stands before the gradient op in its block, or in the forward block of
/// that block or of one around it (the bodies of loops).
///
/// \returns null if there is none.
/// Errors: kUnimplemented, naming both ops, if two ops fit that write the same var: nothing in the
/// program says which of them it is.
StatusOr<Op*> forward_op(Op& gradient, llvm::StringRef type);

}  // namespace millrace::transpiler
