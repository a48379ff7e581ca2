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

/// True for the gradient of an array, and for a part of it that is still to be summed.
bool is_gradient_of_array(llvm::StringRef name, const std::string& array);
/// The array from which a gradient op takes the gradient of an element; null: it takes none.
const std::string* taken_from(const PendingOp& pending);

/// Lets the gradients of a step, or of an earlier op, add to what is there: an element is set to
/// zero once the op that has written it has taken its gradient, as it may be written again.
/// \param ops     of a block, after sum_repeated_outputs()
/// \param arrays  names of forward vars
void clear_taken_elements(std::vector<PendingOp>& ops, const Names& arrays);

}  // namespace millrace::ops::backward
