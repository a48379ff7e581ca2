#pragma once

#include "framework/program.h"

namespace millrace::ops::backward {

/// Restores the loop counters for the gradients of another loss. Gradient ops count the counters of
/// loops back, so a second set of gradients would begin with counters at their initial values. This
/// function copies each such counter after the forward ops of the block and before the first
/// gradient op of earlier calls, and appends ops that restore it before the gradients of this call.
///
/// \param forward  the block whose gradients are computed
/// \param target   the block for the gradient ops, without ops of this call: block 0 itself or a
/// new one
void restore_counters(Block& forward, Block& target);

}  // namespace millrace::ops::backward
