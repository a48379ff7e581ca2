#pragma once

#include <string>

#include "framework/base/status.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::jobs {

/// Path of the slices.json of a job: `named` if it is not empty, otherwise the one in the parent of
/// the program's folder. \returns an empty path if there is no such file
std::string find_slices(const std::string& named, const std::string& program);

/// Reads a slices.json of at most 1 GiB. Errors: those of read_file() and parse_slices_json(), with
/// the file name.
StatusOr<transpiler::SlicesFile> read_slices(const std::string& path);

}  // namespace millrace::jobs
