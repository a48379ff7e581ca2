#pragma once

#include "framework/program.h"

namespace millrace::ops::backward {

/// Gradients count the counters of loops back, so those of a second loss would begin with counters
/// at their start. Copies what gradients of earlier calls count back, when the ops of a block have
/// run and before the first of these gradients, and lets the gradients of this call begin with it.
///
/// \param forward  the block whose gradients are made
/// \param target   their block, without ops of this call: block 0 itself or a new one
void restore_counters(Block& forward, Block& target);

}  // namespace millrace::ops::backward
