#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ops/backward/append_backward.h"
#include "ops/construct/builder.h"
#include "ops/minimize/options.h"

namespace millrace::ops {

/// Result of minimize().
struct MinimizeResult {
  std::vector<Op*> optimize_ops;       ///< ops of the updates in order, without clip and decay
  std::vector<ParamGrad> param_grads;  ///< as append_backward() returns them
  std::string learning_rate;           ///< var that holds the rate
  std::vector<Status> warnings;        ///< of append_backward()
};

/// Turns a forward program into a training program. Appends the ops of the learning-rate schedule,
/// of append_backward(), clipping and regularization, and one update op per parameter, in order of
/// parameter names. Declares the optimizer's state in both programs; the startup program
/// initializes it. May be called again for another loss of the same program.
///
/// Errors: those of append_backward(); kInvalidArgument with the name of an invalid option;
/// kUnimplemented for a global norm over gradients in both float16 and bfloat16.
/// Source: spec/backward.md section 8.
StatusOr<MinimizeResult> minimize(Builder& builder, const std::string& loss,
                                  const MinimizeOptions& options);

/// Number of append_backward() calls on the program so far: each begins with a fill_constant op.
int earlier_backward_calls(const Block& root);

}  // namespace millrace::ops
