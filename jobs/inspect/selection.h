#pragma once

#include <functional>
#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/program.h"

namespace millrace::jobs {

/// The part of a program that is shown.
struct Selection {
  int block = -1;                                   ///< index of the only block; -1: all blocks
  std::vector<std::string> ops;                     ///< types of ops; empty: all
  std::function<bool(llvm::StringRef)> wanted_var;  ///< by name; empty: all
};

/// Removes what is not selected. \returns true if there was any selection
/// Errors: kInvalidArgument for a block that the program does not have.
StatusOr<bool> select_part(Program& program, const Selection& selection);

}  // namespace millrace::jobs
