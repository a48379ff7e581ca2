#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "ops/minimize/options.h"

namespace millrace {
class Program;
}

/// Gradients and optimizers of programs that were read from files. (A network written in C++ has
/// Network::minimize().) Functions are pure; the given programs are not changed.
namespace millrace::api {

/// A parameter and the var that holds its gradient.
using ParamGrads = std::vector<std::pair<std::string, std::string>>;

/// What append_backward() returns.
struct BackwardResult {
  std::shared_ptr<const Program> main;  ///< the given program with gradient ops
  ParamGrads param_grads;               ///< parameters that have a gradient
  std::vector<Status> warnings;         ///< about gradients that may be wrong or are lost
};

/// Appends the ops that compute the gradients of a loss. May be called again for another loss; its
/// gradients then have names of their own.
///
/// \param loss        var of block 0 with one element
/// \param parameters  whose gradients are wanted, in the order of the result; empty: all parameters
///                    of block 0 that are not in no_grad, in order of names
/// \param no_grad     vars through which no gradient flows, in addition to those with stop_gradient
/// Errors: kInvalidProgram with the op's location if the program breaks a rule, or if the loss is
/// missing or does not have one element; kUnimplemented for an op that needs a gradient and has no
/// gradient rule.
StatusOr<BackwardResult> append_backward(const Program& main, const std::string& loss,
                                         const std::vector<std::string>& parameters = {},
                                         const std::set<std::string>& no_grad = {});

/// What minimize() returns.
struct MinimizeResult {
  std::shared_ptr<const Program> main;     ///< with gradient, clip, decay and update ops
  std::shared_ptr<const Program> startup;  ///< also initializes the optimizer's state
  ParamGrads param_grads;                  ///< parameters that are trained
  std::string learning_rate;               ///< var that holds the rate
  std::vector<Status> warnings;            ///< as in BackwardResult
};

/// Turns a forward program into a training program. May be called again for another loss.
/// Errors: those of append_backward(); kInvalidArgument with the name of a bad option;
/// kUnimplemented naming a combination of options that is not supported.
StatusOr<MinimizeResult> minimize(const Program& main, const Program& startup,
                                  const std::string& loss, const MinimizeOptions& options);

}  // namespace millrace::api
