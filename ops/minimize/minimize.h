#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ops/backward/append_backward.h"
#include "ops/construct/builder.h"
#include "ops/minimize/options.h"

namespace millrace::ops {

/// What minimize() has made.
struct MinimizeResult {
  std::vector<Op*> optimize_ops;  ///< of the updates, in order; clip and decay are not among them
  std::vector<ParamGrad> param_grads;  ///< as append_backward() gives them
  std::string learning_rate;           ///< var that holds the rate
  std::vector<Status> warnings;        ///< of append_backward()
};

/// Turns a forward program into a training program: the ops of the schedule, append_backward(),
/// clipping, regularisation, and one update op a parameter, in order of parameter names; what the
/// optimizer keeps is declared in both programs and filled by the startup program. May be called
/// again for another loss of the same program.
///
/// Errors: those of append_backward(); kInvalidArgument for an option that makes no sense, naming
/// it; kUnimplemented for gradients in both half precisions under a global norm.
/// Source: spec/backward.md section 8.
StatusOr<MinimizeResult> minimize(Builder& builder, const std::string& loss,
                                  const MinimizeOptions& options);

}  // namespace millrace::ops
