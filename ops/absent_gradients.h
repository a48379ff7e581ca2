#pragma once

#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"

/// Gradients that training programs name but do not have.
namespace millrace::ops {

/// True if an argument of an input slot `...@GRAD` of a gradient op is neither declared nor written
/// where the op stands: the gradient of an output that nobody used. The original names them (of
/// `recurrent`, `conditional_block` and others with lists of outputs) and runs the op as if the
/// argument were not there. Cost: linear in the blocks around the op.
bool is_absent_gradient(const Op& op, llvm::StringRef slot, llvm::StringRef name);

/// States of recurrences whose gradient does not reach the step before, although the gradient block
/// computes it: parameters then get gradients without what flows through time. Two cases, both made
/// by the original without a word: nobody reads the sequence of states, which is an output, so that
/// the op that would hand the gradient on is left out; or the block overwrites the gradient,
/// because an op other than one that hands the state out reads the state.
///
/// \returns a status each (kInvalidProgram) with the place of the recurrent_grad and the state
std::vector<Status> lost_state_gradients(const Program& program);

}  // namespace millrace::ops
