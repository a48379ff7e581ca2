#pragma once

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "transpiler/distribute/job.h"

/// How the state of optimizers is sliced with the params it belongs to.
namespace millrace::transpiler {

/// Decides how the state of an optimizer op is sliced along with its param.
/// \returns true if the accumulator in the slot has the shape of the param and is sliced with it
/// Errors: kUnimplemented if the op type's state cannot be sliced over servers, naming op and slot.
StatusOr<bool> accumulator_follows_param(const Op& op, llvm::StringRef slot, bool param_is_cut);
/// True for slots that are not accumulators: Param, Grad, LearningRate, Beta1Tensor, Beta2Tensor.
bool is_plain_optimizer_slot(llvm::StringRef slot);

/// Whether a var kept by another op than the update (such as an average) is sliced with the param
/// of the pair.
bool kept_var_follows_param(const Var& var, const Block& block, const ParamGrad& pair);

/// Facts of a var for the overview.
VarFacts facts_of(const Var& var);

}  // namespace millrace::transpiler
