#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// What the gradient op of a unary op reads in addition to Out@GRAD.
enum class GradReads { kNothing, kX, kOut, kBoth };

/// Schema of an op X -> Out that keeps shape, dtype and LoD. The caller adds attributes.
///
/// \param grad_type  type of the gradient op; empty: the op has no gradient
OpDef unary_op(llvm::StringRef type, llvm::StringRef grad_type, GradReads reads,
               llvm::StringRef doc);

/// Register the tables of this folder: activations of networks, and functions of one variable.
void add_activation_ops(OpRegistry& registry);
void add_function_ops(OpRegistry& registry);

/// Ops with a separate file.
OpDef prelu();
OpDef softmax();
OpDef log_softmax();
OpDef sign();

}  // namespace millrace::ops
