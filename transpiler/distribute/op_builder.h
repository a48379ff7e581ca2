#pragma once

#include <string>
#include <vector>

#include "framework/block.h"
#include "framework/program.h"

/// Small helpers for emitting ops the way every distribution pass does.
namespace millrace::transpiler {

/// Numbers control variables of one program in order of creation.
class ControlVars {
 public:
  /// Declares the next control variable (no shape, not persistable) and returns its name.
  std::string create(Block& block);

 private:
  int64_t next_ = 0;
};

/// Gives an emitted op the attributes all emitted ops carry: op_namescope "/" and its role.
Op& finish(Op& op, int32_t role);

}  // namespace millrace::transpiler
