#pragma once

#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/backward/pending.h"

/// Arrays that loops write, and the gradients of their elements. The gradient of a read writes an
/// element, so of two reads of one element in different steps, or in a loop and after it, the one
/// replaces the other.
namespace millrace::ops::backward {

/// Arrays that a loop writes and that it reads at several places, or at one while ops outside of it
/// read other elements than the last. Reads of the last element, by the index that the loop has
/// written with, are not counted: no step reads it.
/// \param warnings  gets arrays whose reads in branches cannot be told apart; null: nobody
Names arrays_read_apart(const Op& loop, std::vector<Status>* warnings);

/// Lets the gradients of a step add to what is there: an element is set to zero once the op that
/// has written it has taken its gradient, as a step may write it again.
/// \param ops     of the body of a loop, after sum_repeated_outputs() with the same names
/// \param arrays  names of forward vars
void clear_taken_elements(std::vector<PendingOp>& ops, const Names& arrays);

}  // namespace millrace::ops::backward
