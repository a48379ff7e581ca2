#pragma once

#include <optional>
#include <string>

#include "framework/base/status.h"
#include "io/params_manifest.h"

namespace millrace::jobs {

/// The first file of a table that the manifest beside a folder lists; nothing if there is no such
/// file, or no manifest. Errors: those of reading and parsing the manifest.
StatusOr<std::optional<io::ParamsManifest::TablePart>> find_listed_table(const std::string& folder);

}  // namespace millrace::jobs
