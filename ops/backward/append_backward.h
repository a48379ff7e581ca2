#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/registry.h"

namespace millrace::ops {

/// A parameter and the var that holds its gradient.
struct ParamGrad {
  std::string param;
  std::string grad;
  bool operator==(const ParamGrad&) const = default;
};

/// What append_backward() is asked for.
struct BackwardRequest {
  /// Var of block 0 to be minimized: one element (rank 0, or one dim of 1).
  std::string loss;
  /// Parameters whose gradients are wanted, in the order of the result. Empty: every parameter of
  /// block 0 that is not in no_grad, in order of names, because a serialized program does not keep
  /// the order of their creation.
  std::vector<std::string> parameters;
  /// Vars of block 0 through which no gradient flows, besides those that say stop_gradient.
  std::set<std::string> no_grad;
  /// How often the program was differentiated before; from the second time on, gradients whose
  /// names exist get the prefix "grad/" once for every call.
  int earlier_calls = 0;
  /// Called after each op that is appended, for example to clip a gradient in place; may append
  /// ops.
  std::function<void(Block& block, Op& op)> after_append;
  /// Gets what makes gradients doubtful, with the place: ops of block 0 whose gradient reads a
  /// value that a later op has overwritten by then. The original says nothing of it. Null: nobody.
  std::vector<Status>* warnings = nullptr;
};

/// Appends the ops that compute the gradients of a loss, declares their vars, and marks roles: Loss
/// on the op that makes the loss, Backward on what is appended, op_role_var on the ops that finish
/// the gradient of a parameter. Ops with a sub-block get a gradient block of their own.
///
/// \returns parameters that the loss reaches, with their gradients
/// Errors: kInvalidProgram with the op's place if the loss is missing, not one element, or an op of
/// unknown type stands on the way; kUnimplemented for an op that must have a gradient and has no
/// rule. After an error the program is unspecified.
/// Source: spec/backward.md sections 1 to 6. Cost: linear in ops and arguments.
StatusOr<std::vector<ParamGrad>> append_backward(const OpRegistry& registry, Program& program,
                                                 const BackwardRequest& request);

}  // namespace millrace::ops
