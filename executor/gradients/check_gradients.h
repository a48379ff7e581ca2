#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "executor/runtime.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"

namespace millrace::executor {

/// Options of check_gradients().
struct GradientCheckOptions {
  /// For a program with gradients: only the gradients of this loss; empty: those of all its losses.
  /// A program without gradients must name it.
  std::string loss;
  /// Parameters to check; empty: all that a loss depends on.
  std::vector<std::string> params;
  /// Vars of block 0 that are constants, in addition to those with stop_gradient: the no_grad_set
  /// with which the program was built.
  std::set<std::string> no_grad;
  /// The whole program runs in float64; an op without a kernel for that is an error. False: it runs
  /// in the declared types, in which central differences are less precise.
  bool in_float64 = true;
  double epsilon = 0;    ///< change of an element; 0: 1e-5 in float64, else 1e-2
  double tolerance = 0;  ///< largest relative difference; 0: 1e-5 in float64, else 5e-2
  int64_t samples = 6;   ///< elements per parameter, besides one random direction; 0: all of them
  uint64_t seed = 0;     ///< seed for choosing elements and directions, and of random ops
  int threads = 1;
  bool optimize = true;  ///< check the program rewritten to run faster
};

/// The gradient of one element, or along a direction, computed in both ways.
struct GradientSample {
  std::vector<int64_t> at;  ///< indices of the element; empty with is_direction
  bool is_direction = false;
  double analytical = 0;  ///< computed by the program
  double numerical = 0;   ///< from central differences
  double error = 0;       ///< their difference, relative to the larger one
};

/// Result of the check for a parameter.
struct ParamCheck {
  std::string param;
  std::string grad;  ///< its gradient var; empty if the program computes none
  int64_t elements = 0;
  int64_t checked = 0;  ///< number of elements that were changed
  bool ok = true;
  GradientSample worst;
};

/// Result of the check for a program.
struct GradientReport {
  std::vector<std::string> losses;
  double loss = 0;  ///< at the point of the check; the sum of the losses
  std::vector<ParamCheck> params;
  std::vector<std::string> notes;  ///< what was left out or held constant, one line each
  [[nodiscard]] bool ok() const;
};

/// Compares the gradients that a program computes with central differences of its loss, through
/// loops and branches, element by element and along one random direction per parameter.
///
/// Updates of a training program are left out; a forward program gets gradient ops here. Vars with
/// stop_gradient are held constant while parameters change. Every run starts from the same state
/// (running statistics, random numbers). If an element fails, smaller changes are tried, because
/// the loss may have a kink within the first one.
///
/// \param values  persistable vars; not changed
/// \param feeds   of one step
/// Errors: kUsage for a loss or a parameter that does not exist, or if there is nothing to check;
/// kUnimplemented naming an op without a float64 kernel, and for programs of distributed jobs;
/// kExecution if the loss is not repeatable, naming the random ops; those of ops with their
/// location.
StatusOr<GradientReport> check_gradients(const std::shared_ptr<const Runtime>& runtime,
                                         const Program& program, const Scope& values,
                                         const NamedValues& feeds,
                                         const GradientCheckOptions& options);

}  // namespace millrace::executor
