#pragma once

#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/backward/pending.h"

/// Elements of arrays that are written again. The gradient of a write takes the gradient of its
/// element; where an earlier op had written the same element, that op must find zero there.
namespace millrace::ops::backward {

/// Arrays of which a forward op of this block may write an element that has been written before:
/// by another op, in an earlier step of a loop, or before a loop that the block belongs to. Indices
/// are compared where they are constants or count up; two others count as the same element.
///
/// Cost: linear in ops for each op that writes an array.
Names arrays_overwritten(const Block& block);

/// Every write of an array that is overwritten must have taken a gradient, whose element then is
/// cleared.
///
/// \param ops  gradient ops of a block, before clear_taken_elements()
///
/// Errors: kUnimplemented, at the write of a value that has no gradient, or at one in a branch.
Status check_taken(const std::vector<PendingOp>& ops, const Block& forward);

/// Lets the gradient of a loop that overwrites elements hand the cleared gradients of their arrays
/// out to the ops before it, also where the loop does not read the array.
void hand_out_arrays(GradOp& grad, const Op& loop);

}  // namespace millrace::ops::backward
