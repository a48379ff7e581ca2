#pragma once

#include <string>
#include <string_view>

#include "framework/base/status.h"

namespace millrace::io {

/// Path of a file below a folder, for names that come from a program or from the network.
///
/// Refused: an empty name, a NUL byte, an absolute path, a component `..` or `.`, and a symbolic
/// link that leads out of the folder. The file itself need not exist.
/// Errors: kInvalidData with folder and name.
StatusOr<std::string> path_below(const std::string& folder, std::string_view name);

/// path_below(), and makes the folders between. Errors: also kIo.
StatusOr<std::string> make_path_below(const std::string& folder, std::string_view name);

/// Without the slashes at its end; "/" stays.
std::string without_slash(std::string folder);

}  // namespace millrace::io
