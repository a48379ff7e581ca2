#pragma once

#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/backward/pending.h"

/// Warnings of append_backward(). The original gives none.
namespace millrace::ops::backward {

/// Adds a warning for each gradient of an op that may be wrong, as in the original:
/// - it reads a value that a later op of block 0 has overwritten by then: gradient ops run after
/// all forward ops;
/// - a later op computes the gradient of an output (a float tensor) that no gradient op of this op
/// reads, such as `Cell` of `lstm`, so what flows through that output is lost.
/// \param made   the gradient ops of the op; empty: none of its inputs wants a gradient
/// \param later  gradient ops of later forward ops of the same block
/// \param warnings  null: no warnings
void note_wrong_gradients(const Op& op, const std::vector<GradOp>& made,
                          const std::vector<PendingOp>& later, std::vector<Status>* warnings);

}  // namespace millrace::ops::backward
