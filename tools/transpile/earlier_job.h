#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "tools/common/tool.h"

/// Files of an earlier job in the output folder, which whoever runs the new one would take for its
/// own: roles beyond its number of trainers and servers, tables that it does not have.
namespace millrace::tools {

struct WrittenJob {
  int64_t trainers = 0;
  int64_t servers = 0;
  std::vector<std::string> roles;  ///< folders that are written now
  bool is_fleet = false;
  bool has_tables = false;  ///< tables.json
};

/// Removes them with --force. Errors: kInvalidArgument naming the first without it; kIo.
Status clear_earlier_job(const Tool& tool, const WrittenJob& job);

}  // namespace millrace::tools
