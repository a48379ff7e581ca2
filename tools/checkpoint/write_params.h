#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "jobs/checkpoint/write_options.h"
#include "tools/checkpoint/byte_progress.h"
#include "tools/checkpoint/options.h"

namespace millrace::tools {

/// What a command writes.
struct WriteReport {
  std::string command;
  std::string from;  ///< form of the input
  std::string to;    ///< form of the output
  size_t vars = 0;
  uint64_t bytes = 0;
  std::optional<int> ranks;  ///< number of ranks or servers of the output
};

/// Reports what was written, or with --dry-run what would be: as one JSON document on stdout with
/// --json, as a line on stdout with --dry-run, otherwise as a log line.
Status report_written(Tool& tool, const CheckpointFlags& flags, const WriteReport& report);

/// How the flags ask for values to be written. \param progress  must outlive the options
jobs::WriteOptions write_options(const Tool& tool, const CheckpointFlags& flags,
                                 ByteProgress& progress);

/// For --dry-run: reports the errors that writing would report. \param paths  files that would be
/// written. Errors: kUsage for a file that exists, without --force.
Status check_writable(const Tool& tool, const std::vector<std::string>& paths);

}  // namespace millrace::tools
