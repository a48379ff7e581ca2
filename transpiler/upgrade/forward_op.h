#pragma once

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/program.h"

namespace millrace::transpiler {

/// Finds the op whose gradient `gradient` computes: an op of the given type with the vars that the
/// gradient op names. It is before the gradient op in its block, or in the forward block of that
/// block or of an enclosing block (bodies of loops).
///
/// \returns null if there is none.
/// Errors: kUnimplemented, naming both ops, if two ops match and write the same var: the program
/// does not determine which of them it is.
StatusOr<Op*> forward_op(Op& gradient, llvm::StringRef type);

}  // namespace millrace::transpiler
