#pragma once

#include <string>
#include <vector>

#include "jobs/ps/server_status.h"

namespace millrace::tools {

/// A table with one row per server, and below it one row per trainer. Text that is not a valid
/// status is shown as it is, escaped.
std::string status_table(const std::vector<jobs::ServerAnswer>& answers);
/// {"servers": [{"endpoint", "answered", "ms", "server" or "error"}]}.
std::string status_json(const std::vector<jobs::ServerAnswer>& answers);

}  // namespace millrace::tools
