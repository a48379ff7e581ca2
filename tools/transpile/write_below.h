#pragma once

#include <string>

#include "framework/base/file.h"
#include "framework/base/status.h"
#include "tools/common/tool.h"

namespace millrace::tools {

/// Writes a file into a sub-folder of -o, which is created if necessary. \param folder  empty: -o
Status write_below(Tool& tool, const std::string& folder, const std::string& name,
                   const std::string& bytes, Flush flush = Flush::kYes);

}  // namespace millrace::tools
