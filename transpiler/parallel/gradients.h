#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"

namespace millrace::transpiler {

/// A gradient of a parameter that the devices have to exchange.
struct ParallelGrad {
  std::string param;
  std::string grad;
  Op* writer = nullptr;  ///< op after which the gradient is complete
  DType dtype = DType::kFloat32;
  int64_t elements = 0;  ///< declared; 0 if not known
  bool sparse = false;   ///< declared as selected rows
  int owner = -1;        ///< device that gets the sum; -1: all
};

/// The gradients of block 0 in the order in which the program computes them: the pairs in
/// op_role_var of its backward ops, after the op that seeds back-propagation. Gradients that an
/// all-reduce op of the program already reads, and gradients that no op writes, are left out.
/// Errors: kInvalidProgram with the op's location for a list of odd length or an undeclared var.
StatusOr<std::vector<ParallelGrad>> find_gradients(Program& program);

}  // namespace millrace::transpiler
