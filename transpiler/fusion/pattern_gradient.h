#pragma once

#include <optional>
#include <string>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/SmallVector.h>

#include "transpiler/fusion/inner_vars.h"

namespace millrace::transpiler {

/// What a group of ops that compute one result reads from outside.
struct PatternInputs {
  std::string x;
  std::string scale;  ///< a persistent row; empty: none
  std::string bias;   ///< as scale
};

/// The gradient ops of such a group: they compute the gradients of its inputs from the gradient of
/// its result, and no other op reads the values between them.
struct PatternGradient {
  llvm::SmallVector<Op*, 8> ops;  ///< in block order, with sums of gradients within the group
  std::string incoming;           ///< gradient of the result
  llvm::SmallVector<std::string, 4> of_x;  ///< terms of the gradient of x
  Op* sum = nullptr;  ///< adds the terms if there are several; may have other terms; not in `ops`
  std::string of_scale;  ///< empty: not computed
  std::string of_bias;
};

/// True if only these ops and gradient ops read the var.
bool is_read_by(const InnerVars& inner, llvm::StringRef name, llvm::ArrayRef<const Op*> ops);

/// \param ops  the group in block order; the last one writes the result to Out
/// \returns nullopt if the ops have gradient ops that do not form a closed group, so the ops must
///          stay; a result with empty `ops` if they have no gradient ops
std::optional<PatternGradient> find_pattern_gradient(llvm::ArrayRef<Op*> ops,
                                                     const PatternInputs& inputs,
                                                     const InnerVars& inner);

/// Replaces the gradient ops by one op at the position of the last one. The caller sets its slots
/// and attributes, except for the outputs X@GRAD, Scale@GRAD and Bias@GRAD.
Op& join_pattern_gradient(const PatternGradient& gradient, llvm::StringRef type,
                          const InnerVars& inner);

}  // namespace millrace::transpiler
