#pragma once

#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"

/// Finds gradients that a training program names but that no op computes.
namespace millrace::ops {

/// True if `name`, an argument of input slot `slot` (`...@GRAD`) of a gradient op, is neither
/// declared nor written in the op's block or an enclosing one. It is then the gradient of an output
/// that no op used. The original names such gradients (for `recurrent`, `conditional_block` and
/// other ops with lists of outputs) and runs the op as if the argument were absent. Cost: linear in
/// the size of these blocks.
bool is_absent_gradient(const Op& op, llvm::StringRef slot, llvm::StringRef name);

/// Finds states of recurrences whose gradient is partly or entirely lost between time steps,
/// although the gradient block computes it. The gradients of parameters then lack the part that
/// flows through time. The original generates such programs without a warning, in three cases:
/// - no op reads the sequence of states, which is an output, so the op that would pass the gradient
/// on is left out;
/// - the block overwrites the gradient, because an op of the time step reads the state, not only
/// the op that copies it to the output;
/// - the gradient of the next time step replaces the one that comes from uses of the state outside
/// of the recurrence, or in another memory.
///
/// \returns one kInvalidProgram status per state, with the location of recurrent_grad and the state
std::vector<Status> lost_state_gradients(const Program& program);

}  // namespace millrace::ops
