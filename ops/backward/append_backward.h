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

/// Input of append_backward().
struct BackwardRequest {
  /// Var of block 0 to be minimized. It has one element (rank 0, or all dims are 1).
  std::string loss;
  /// Parameters whose gradients are wanted, in the order of the result. Empty: every parameter of
  /// block 0 that is not in no_grad, in order of names, because a serialized program does not keep
  /// the order of their creation.
  std::vector<std::string> parameters;
  /// Vars of block 0 through which no gradient flows, in addition to those with stop_gradient set.
  std::set<std::string> no_grad;
  /// Number of earlier append_backward() calls on the program. If it is not 0, gradients whose
  /// names are taken get the prefix "grad/" once per call, this one included.
  int earlier_calls = 0;
  /// Called after each appended op, for example to clip a gradient in place. May append ops.
  std::function<void(Block& block, Op& op)> after_append;
  /// Receives warnings about gradients that may be wrong, each with a location: for example an op
  /// of block 0 whose gradient reads a value that a later op has overwritten by then. The original
  /// gives no such warning. Null: no warnings.
  std::vector<Status>* warnings = nullptr;
};

/// Appends the ops that compute the gradients of a loss, declares their vars, and sets roles: Loss
/// on the op that computes the loss, Backward on the appended ops, op_role_var on the ops that
/// complete the gradient of a parameter. An op with a sub-block gets a gradient block. Before that,
/// vars that several forward ops write are renamed where gradients need their earlier values
/// (split_versions()).
///
/// \returns the parameters that have a gradient with respect to the loss, with these gradients
/// Errors: kInvalidArgument for a name in parameters or no_grad that the program does not declare;
/// kInvalidProgram with the op's location if the loss is missing, does not have one
/// element, or depends on an op of unknown type; kUnimplemented for an op that needs a gradient and
/// has no gradient rule. After an error the program is in an unspecified state.
/// Source: spec/backward.md sections 1 to 6. Cost: linear in ops and arguments.
StatusOr<std::vector<ParamGrad>> append_backward(const OpRegistry& registry, Program& program,
                                                 const BackwardRequest& request);

}  // namespace millrace::ops
