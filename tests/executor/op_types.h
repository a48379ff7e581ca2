#pragma once

#include <string>
#include <vector>

#include "framework/program.h"

namespace millrace::executor {

/// Types of the ops of the root block, in order.
inline std::vector<std::string> op_types(const Program& program) {
  std::vector<std::string> types;
  for (const Op& op : program.root().ops()) types.push_back(op.type().str());
  return types;
}

}  // namespace millrace::executor
