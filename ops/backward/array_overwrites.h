#pragma once

#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/backward/pending.h"

/// Elements of tensor arrays that several ops write. The gradient op of a write reads the gradient
/// of its element. If an earlier op has written the same element, the gradient of that element must
/// then be zero for it, because its value was overwritten.
namespace millrace::ops::backward {

/// Arrays in which a forward op of this block may overwrite an element. The element may have been
/// written by another op, in an earlier iteration of a loop, or before a loop that contains the
/// block. Indices are compared if they are constants or count up; otherwise two indices count as
/// equal.
///
/// Cost: linear in ops for each op that writes an array.
Names arrays_overwritten(const Block& block);

/// Checks that every write to an array with overwritten elements has a gradient op, which reads the
/// gradient of the element so that it can be cleared afterwards.
///
/// \param ops  gradient ops of a block, before clear_taken_elements()
///
/// Errors: kUnimplemented with the location of a write of a value that has no gradient, or of a
/// write in a branch.
Status check_taken(const std::vector<PendingOp>& ops, const Block& forward);

/// Adds to the gradient op of a loop, as inputs and outputs, the arrays with overwritten elements
/// that the loop does not list as inputs, and those of which it reads earlier elements. The
/// gradient ops of earlier ops then see their cleared gradients, and those of the elements that it
/// reads.
void hand_out_arrays(GradOp& grad, const Op& loop);

}  // namespace millrace::ops::backward
