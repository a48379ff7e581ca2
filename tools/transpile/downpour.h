#pragma once

#include "tools/common/tool.h"
#include "tools/transpile/fields.h"

namespace millrace::tools {

/// transpile-program --downpour CONFIG: with servers in CONFIG the files of write_fleet() for every
/// process, and beside them fleet_desc.txt (the tables as DownpourSGD describes them) and
/// opt_info.json. Without servers, which several losses may have too: main_<i>/__model__, the
/// programs with their gradients, in order of the losses, and those two files below -o.
StatusOr<int> write_downpour(Tool& tool, const TranspileOptions& options);

}  // namespace millrace::tools
