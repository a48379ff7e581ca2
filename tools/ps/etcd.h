#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ps/discovery/etcd.h"
#include "tools/common/tool.h"

namespace millrace::tools {

/// --etcd and --etcd-lease-s.
void add_etcd_flags(Tool& tool, std::vector<std::string>& members, int64_t& lease_s);

/// Opens the directory of a job in etcd; its events are logged. Errors: those of
/// ps::make_etcd_directory().
StatusOr<std::shared_ptr<ps::Directory>> open_etcd(const Tool& tool,
                                                   const std::vector<std::string>& members,
                                                   const std::optional<ps::TlsFiles>& tls,
                                                   const std::string& job,
                                                   std::chrono::seconds lease);

}  // namespace millrace::tools
