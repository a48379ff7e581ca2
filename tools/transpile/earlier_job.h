#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "tools/common/tool.h"

/// Files of an earlier job in the output folder that a run of the new job would use by mistake:
/// roles beyond its number of trainers and servers, and tables that it does not have.
namespace millrace::tools {

struct WrittenJob {
  int64_t trainers = 0;
  int64_t servers = 0;
  std::vector<std::string> roles;  ///< folders that this job writes
  bool is_fleet = false;
  bool has_tables = false;  ///< tables.json
};

/// Removes such files with --force. Errors: kInvalidArgument naming the first one if --force is not
/// given; kIo.
Status clear_earlier_job(const Tool& tool, const WrittenJob& job);

}  // namespace millrace::tools
