#pragma once

#include "tools/common/tool.h"
#include "tools/transpile/fields.h"

namespace millrace::tools {

/// transpile-program --minimize CONFIG: turns a forward program into a training program below -o.
/// With --backward-only: backward/__model__, the program with the gradients of every loss.
StatusOr<int> minimize(Tool& tool, const TranspileOptions& options);

}  // namespace millrace::tools
