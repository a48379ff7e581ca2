#pragma once

#include <optional>
#include <string>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/SmallVector.h>

#include "transpiler/fusion/inner_vars.h"

namespace millrace::transpiler {

/// What a group of ops, which make one result, reads from outside.
struct PatternInputs {
  std::string x;
  std::string scale;  ///< a stored row; empty: none
  std::string bias;   ///< the same
};

/// The gradient ops of such a group: they compute the gradients of its inputs from that of its
/// result, and nobody else reads what lies between.
struct PatternGradient {
  llvm::SmallVector<Op*, 8> ops;  ///< in block order, with sums of gradients within the group
  std::string incoming;           ///< gradient of the result
  llvm::SmallVector<std::string, 4> of_x;  ///< summands of the gradient of x
  Op* sum = nullptr;  ///< adds these, if they are several; it may have others, and is not in `ops`
  std::string of_scale;  ///< empty: not wanted
  std::string of_bias;
};

/// True if only these ops and gradient ops read the var.
bool is_read_by(const InnerVars& inner, llvm::StringRef name, llvm::ArrayRef<const Op*> ops);

/// \param ops  the group in block order; the last one writes the result to Out
/// \returns nullopt if the ops have gradients that are no group of their own, so that they must
///          stay; without any `ops` if they have none
std::optional<PatternGradient> find_pattern_gradient(llvm::ArrayRef<Op*> ops,
                                                     const PatternInputs& inputs,
                                                     const InnerVars& inner);

/// Makes one op of them, which stands where the last one stood. Its slots and attributes are the
/// caller's to set, but for the outputs X@GRAD, Scale@GRAD and Bias@GRAD.
Op& join_pattern_gradient(const PatternGradient& gradient, llvm::StringRef type,
                          const InnerVars& inner);

}  // namespace millrace::transpiler
