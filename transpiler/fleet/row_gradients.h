#pragma once

#include <string>

#include "framework/base/status.h"
#include "framework/program.h"

namespace millrace::transpiler {

/// The gradient with which a program updates an embedding: that of its lookups, or what the program
/// makes of it (clipping by a norm). Empty if no op updates it.
std::string gradient_of_update(const Block& block, llvm::StringRef param);

/// Computes again what the worker's program of a fleet job (make_fleet_worker()) reads but no
/// longer computes: gradients of embeddings, as selected rows, which clipping by a norm needs.
/// distributed_push_sparse then pushes what the program makes of them: its input Grads names that
/// var, or has none if it is the gradient itself, changed in place. Sums of gradients that no other
/// op reads are removed.
///
/// Not part of make_fleet_worker(), because the original's workers have no such ops.
/// Errors: kUnimplemented for an op that reads a gradient that the lookups cannot provide at that
/// position, or one that begins with shows and clicks (use_cvm_op).
Status restore_row_gradients(Program& main);

}  // namespace millrace::transpiler
