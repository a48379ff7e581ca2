#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/file.h"
#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "tools/checkpoint/options.h"

namespace millrace::tools {

/// Returns the value of a name; called once for each name, in order.
using LoadValue = std::function<StatusOr<Value>(const std::string& name)>;

/// Writes a combined file of the original: the variables one after another. Holds one value in
/// memory at a time. Errors: those of `load` and of writing; kUsage if the file exists and may not
/// be replaced.
Status write_combined(const std::string& path, const std::vector<std::string>& names,
                      const LoadValue& load, Replace replace, bool sync);
/// Like write_combined(), but with one file per variable in a folder. A new folder appears only
/// when it is complete.
Status write_separate(const std::string& target, const std::vector<std::string>& names,
                      const LoadValue& load, Replace replace, bool sync);

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

/// For --dry-run: reports the errors that writing would report. \param paths  files that would be
/// written. Errors: kUsage for a file that exists, without --force.
Status check_writable(const Tool& tool, const std::vector<std::string>& paths);

}  // namespace millrace::tools
