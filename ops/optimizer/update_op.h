#pragma once

#include <llvm/ADT/ArrayRef.h>

#include "ops/infer_helpers.h"
#include "ops/op_def.h"

namespace millrace::ops {

/// A tensor of optimizer state for a parameter, which the op updates.
struct StateSlots {
  llvm::StringRef input;
  llvm::StringRef output;
  llvm::StringRef doc;
  Arity arity = Arity::kOne;
};

/// Schema of an op that updates Param from Grad with LearningRate: these inputs, the states, and
/// the corresponding outputs. The caller adds attributes. Inference requires equal rank and row
/// size of Param, a dense Grad and the states, and one element for the rate and for states with
/// "Pow" in their name.
/// \param rate  kOptional for an op that has no LearningRate in older programs
OpDef update_op(llvm::StringRef type, llvm::StringRef doc, llvm::ArrayRef<StateSlots> states,
                Arity rate = Arity::kOne);
/// As update_op(), but the slots hold lists of equal length.
OpDef merged_update_op(llvm::StringRef type, llvm::StringRef doc,
                       llvm::ArrayRef<StateSlots> states);
/// Adds the slots of the single-precision copy of a half-precision Param, and the attribute that
/// enables it.
OpDef& with_master_param(OpDef& def, Arity arity = Arity::kOptional);

/// Cost of an update with the given number of operations per element of all parameters. Sparse
/// gradients count as dense ones, because their number of rows is unknown before the run.
template <int kPerElement>
double update_flops(const InferContext& ctx) {
  double elements = 0;
  for (size_t i = 0; i < ctx.input_count("Param"); ++i)
    elements += element_count(ctx.input("Param", i));
  return kPerElement * elements;
}

}  // namespace millrace::ops
