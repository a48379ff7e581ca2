#pragma once

#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/backward/pending.h"

/// Tensor arrays that loops write, and the gradients of their elements. The gradient op of a read
/// writes the gradient of an element. If an element is read twice, in different iterations or in a
/// loop and after it, one gradient would replace the other.
namespace millrace::ops::backward {

/// Arrays that a loop writes and that several ops of the loop read, or that one op of the loop
/// reads while ops outside of it read other elements than the last one. Reads of the last element
/// after the loop, by the index that the loop wrote with, do not count, because no iteration reads
/// that element.
/// \param warnings  receives a warning for each array that is read in a branch of the loop, which
/// leaves unknown whether two reads are of the same element; null: no warnings
Names arrays_read_apart(const Op& loop, std::vector<Status>* warnings);

/// Arrays of enclosing blocks whose elements the sub-block of an op reads and that the op lists as
/// outputs only: the original lists as inputs what a block reads before it writes it, and counts a
/// write of one element as a write of the array. None for gradient ops.
Names arrays_read_unlisted(const Op& op);

/// True for the gradient of an array, and for a renamed term of it that is yet to be summed.
bool is_gradient_of_array(llvm::StringRef name, const std::string& array);
/// The array from which a gradient op reads the gradient of an element; null: it reads none.
const std::string* taken_from(const PendingOp& pending);

/// Inserts ops that set the gradient of an element to zero once the gradient op of its write has
/// read it. The gradient ops of an earlier iteration or of an earlier op can then add to the
/// element.
/// \param ops     gradient ops of a block, after sum_repeated_outputs()
/// \param arrays  names of forward vars
void clear_taken_elements(std::vector<PendingOp>& ops, const Names& arrays);

}  // namespace millrace::ops::backward
