#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/common/tool.h"

namespace millrace::tools {

/// --etcd and --etcd-lease-s.
void add_etcd_flags(Tool& tool, std::vector<std::string>& members, int64_t& lease_s);

}  // namespace millrace::tools
