#pragma once

#include <string>
#include <vector>

#include <llvm/ADT/StringRef.h>

#include "framework/program.h"

namespace millrace::executor {

/// Names that the ops "feed" set, or that the ops "fetch" read, in order of their attribute `col`.
std::vector<std::string> targets_of(const Program& program, llvm::StringRef type);

}  // namespace millrace::executor
