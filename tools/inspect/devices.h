#pragma once

#include "framework/base/status.h"
#include "tools/common/tool.h"

namespace millrace::tools {

/// Writes a line for each GPU of this machine, or JSON. Errors: kUnimplemented with the reason if
/// no GPU can be used.
StatusOr<int> show_devices(Tool& tool, bool json);

}  // namespace millrace::tools
