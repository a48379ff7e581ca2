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

/// How gradients are checked.
struct GradientCheckOptions {
  /// Of a program that has gradients: only those of this loss; empty: of all its losses. A program
  /// without gradients must name it.
  std::string loss;
  /// Parameters to check; empty: all that a loss is computed from.
  std::vector<std::string> params;
  /// Vars of block 0 that count as constants besides those that say stop_gradient: what the
  /// program was made with as no_grad_set.
  std::set<std::string> no_grad;
  /// The whole program runs in float64; an op without a kernel for that is an error. False: in the
  /// types that it declares, where central differences have few digits.
  bool in_float64 = true;
  double epsilon = 0;    ///< how far an element is moved; 0: 1e-5 in float64, else 1e-2
  double tolerance = 0;  ///< largest relative difference; 0: 1e-5 in float64, else 5e-2
  int64_t samples = 6;   ///< elements of a parameter, besides a random direction; 0: all of them
  uint64_t seed = 0;     ///< of the choice of elements and directions, and of random ops
  int threads = 1;
  bool optimize = true;  ///< gradients are those of the program rewritten to run faster
};

/// The gradient of one element, or along a direction, both ways.
struct GradientSample {
  std::vector<int64_t> at;  ///< indices of the element; empty with is_direction
  bool is_direction = false;
  double analytical = 0;  ///< what the program computes
  double numerical = 0;   ///< of central differences
  double error = 0;       ///< their difference, relative to the larger one
};

/// What the check says of a parameter.
struct ParamCheck {
  std::string param;
  std::string grad;  ///< its gradient var; empty if the program computes none
  int64_t elements = 0;
  int64_t checked = 0;  ///< elements that were moved
  bool ok = true;
  GradientSample worst;
};

/// What the check says of a program.
struct GradientReport {
  std::vector<std::string> losses;
  double loss = 0;  ///< at the point of the check; the sum of the losses
  std::vector<ParamCheck> params;
  std::vector<std::string> notes;  ///< what was left out or held constant, a line each
  [[nodiscard]] bool ok() const;
};

/// Compares the gradients that a program computes with central differences of its loss, through
/// loops and branches, element by element and along one random direction a parameter.
///
/// Of a training program the updates are left out; a forward program gets its gradients here. Vars
/// that say stop_gradient are held constant while parameters move. Every run starts from the same
/// state (running statistics, random numbers). Where an element fails, smaller steps are tried: a
/// kink of the loss may lie within the first.
///
/// \param values  persistable vars; not changed
/// \param feeds   of one step
/// Errors: kUsage for a loss or a parameter that is not there, or nothing to check; kUnimplemented
/// naming an op without kernel for float64, and for programs of jobs; kExecution where the loss
/// is not repeatable, naming the random ops, and those of ops with their place.
StatusOr<GradientReport> check_gradients(const std::shared_ptr<const Runtime>& runtime,
                                         const Program& program, const Scope& values,
                                         const NamedValues& feeds,
                                         const GradientCheckOptions& options);

}  // namespace millrace::executor
