#pragma once

#include "jobs/run/session.h"
#include "tools/run/options.h"

namespace millrace::tools {

/// Options of a session from the flags; `tool` and `options` must outlive them. Errors: those of
/// device_count().
StatusOr<jobs::SessionOptions> session_options(const Tool& tool, const RunOptions& options);

}  // namespace millrace::tools
