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

/// Gives the value of a name; called once for each, in order.
using LoadValue = std::function<StatusOr<Value>(const std::string& name)>;

/// Writes a combined file of the original: the vars one after another, one in memory at a time.
/// Errors: those of `load` and of writing; kUsage if the file exists and may not be replaced.
Status write_combined(const std::string& path, const std::vector<std::string>& names,
                      const LoadValue& load, Replace replace, bool sync);
/// The same as one file a var in a folder, which appears when it is complete if it is new.
Status write_separate(const std::string& target, const std::vector<std::string>& names,
                      const LoadValue& load, Replace replace, bool sync);

/// What a command writes.
struct WriteReport {
  std::string command;
  std::string from;  ///< form of the input
  std::string to;    ///< form of the output
  size_t vars = 0;
  uint64_t bytes = 0;
  std::optional<int> ranks;  ///< or servers, of the output
};

/// Says what was written, or with --dry-run would be: one JSON document on stdout with --json, a
/// line on stdout with --dry-run, else a line in the log.
Status report_written(Tool& tool, const CheckpointFlags& flags, const WriteReport& report);

/// What writing would refuse, for --dry-run. \param paths  files that would be written
/// Errors: kUsage for one that exists, without --force.
Status check_writable(const Tool& tool, const std::vector<std::string>& paths);

}  // namespace millrace::tools
