#pragma once

#include <llvm/ADT/ArrayRef.h>

#include "ops/infer_helpers.h"
#include "ops/op_def.h"

namespace millrace::ops {

/// A tensor beside the parameter that an optimizer keeps and updates.
struct StateSlots {
  llvm::StringRef input;
  llvm::StringRef output;
  llvm::StringRef doc;
  Arity arity = Arity::kOne;
};

/// Schema of an op that updates Param from Grad with LearningRate: those inputs, the states, and
/// their outputs; attributes are chained on. Inference requires rows alike of Param, a dense Grad
/// and the states, and one element for the rate and for states whose name has "Pow".
/// \param rate  kOptional for an op that once had no LearningRate
OpDef update_op(llvm::StringRef type, llvm::StringRef doc, llvm::ArrayRef<StateSlots> states,
                Arity rate = Arity::kOne);
/// As update_op, with slots that hold lists of equal length.
OpDef merged_update_op(llvm::StringRef type, llvm::StringRef doc,
                       llvm::ArrayRef<StateSlots> states);
/// Adds the single-precision copy of a half-precision Param, with the attribute that turns it on.
OpDef& with_master_param(OpDef& def, Arity arity = Arity::kOptional);

/// Cost of an update that takes so many operations for each element of all parameters. Sparse
/// gradients count like dense ones: how many rows they have is not known before the run.
template <int kPerElement>
double update_flops(const InferContext& ctx) {
  double elements = 0;
  for (size_t i = 0; i < ctx.input_count("Param"); ++i)
    elements += element_count(ctx.input("Param", i));
  return kPerElement * elements;
}

}  // namespace millrace::ops
