#pragma once

#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "executor/overlap/groups.h"
#include "executor/step.h"
#include "framework/tensor/value.h"
#include "kernels/registry.h"

namespace millrace::executor {

/// About how long the steps of a block will take, before any of them has run: shape inference goes
/// through all of them, from what is fed and stored, and the flop estimates of ops and the sizes of
/// their tensors say the rest. Times follow from shapes alone, never from a clock, so a program is
/// planned alike in every process.
///
/// Steps that must run alone: those whose dims depend on data or whose arguments are no dense
/// tensors, control ops, ops of the user's, ops that draw random numbers, that exchange with other
/// devices, or do something besides writing their outputs.
///
/// \param table    values of the block; those that no step writes must have their dims
/// \param threads  of a step that has all of them
std::vector<StepWork> estimate_work(llvm::ArrayRef<Step> steps, Value* const* table,
                                    const kernels::KernelRegistry& kernels, int threads);

}  // namespace millrace::executor
