#pragma once

#include "ops/op_def.h"

namespace millrace::ops {

/// What the gradient op of a unary op reads in addition to Out@GRAD.
enum class GradReads { kNothing, kX, kOut, kBoth };

/// Schema of an op X -> Out that keeps shape, dtype and LoD. The caller adds attributes.
///
/// \param grad_type  type of the gradient op; empty: the op has no gradient
OpDef unary_op(llvm::StringRef type, llvm::StringRef grad_type, GradReads reads,
               llvm::StringRef doc);

}  // namespace millrace::ops
