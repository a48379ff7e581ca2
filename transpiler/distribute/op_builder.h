#pragma once

#include <string>
#include <vector>

#include "framework/block.h"
#include "framework/program.h"

/// Helpers for emitting ops in the form that all distribution passes use.
namespace millrace::transpiler {

/// Numbers control variables of one program in order of creation.
class ControlVars {
 public:
  /// Declares the next control variable (no shape, not persistable) and returns its name.
  std::string create(Block& block);

 private:
  int64_t next_ = 0;
};

/// Sets the attributes that all emitted ops have: op_namescope "/" and its role.
Op& finish(Op& op, int32_t role);

}  // namespace millrace::transpiler
