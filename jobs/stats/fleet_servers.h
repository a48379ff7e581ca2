#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::jobs {

/// True if `transpile-program --fleet` wrote the folder.
bool is_fleet_folder(const std::string& folder);

/// What each server of a fleet job holds, from the descriptions in FOLDER/pserver_I; the number of
/// tables is in `slices`. Errors: files that cannot be read; kInvalidData for a malformed one.
StatusOr<std::vector<transpiler::ServerBytes>> fleet_servers(const std::string& folder);

}  // namespace millrace::jobs
