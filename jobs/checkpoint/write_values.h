#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/base/file.h"
#include "framework/base/status.h"
#include "framework/tensor/value.h"

namespace millrace::jobs {

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

}  // namespace millrace::jobs
