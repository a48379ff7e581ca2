#pragma once

#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "executor/compiled_ops/compiled_op.h"
#include "executor/overlap/groups.h"
#include "framework/tensor/value.h"
#include "kernels/registry.h"

namespace millrace::executor {

/// Estimates the time of the ops of a block before any of them has run. Runs shape inference over
/// all ops, starting from fed and persistable values, and uses the flop estimates of ops and the
/// sizes of their tensors. Times depend only on shapes, never on a clock, so every process makes
/// the same plan for a program.
///
/// Some ops must not run in parallel with others: those whose dims depend on data or whose
/// arguments are not dense tensors, control ops, user-defined ops, ops that draw random numbers,
/// that exchange values with other devices, or that have other side effects.
///
/// \param table    values of the block; those that no op writes must have their dims
/// \param threads  of an op that runs on all threads
std::vector<OpWork> estimate_work(llvm::ArrayRef<CompiledOp> compiled_ops, Value* const* table,
                                  const kernels::KernelRegistry& kernels, int threads);

}  // namespace millrace::executor
