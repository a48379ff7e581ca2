#pragma once

#include <cstdint>
#include <string>

#include "framework/base/status.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::jobs {

/// Path of the slices.json of a job: `named` if it is not empty, otherwise the one in the parent of
/// the program's folder. \returns an empty path if there is no such file
std::string find_slices(const std::string& named, const std::string& program);

/// Limit for a slices.json, in bytes.
inline constexpr int64_t kMaxSlicesBytes = int64_t{1} << 30;

/// Reads a slices.json. Errors: those of read_file() and parse_slices_json(), with the file name.
StatusOr<transpiler::SlicesFile> read_slices(const std::string& path,
                                             int64_t max_bytes = kMaxSlicesBytes);

}  // namespace millrace::jobs
