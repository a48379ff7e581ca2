#pragma once

#include <string>
#include <string_view>

#include "framework/base/status.h"

namespace millrace::io {

/// Path of a file inside a folder, for names from a program or from the network.
///
/// Rejected: an empty name, a NUL byte, an absolute path, a component `..` or `.`, and a symbolic
/// link that leads out of the folder. The file itself need not exist.
/// Errors: kInvalidData with folder and name.
StatusOr<std::string> path_below(const std::string& folder, std::string_view name);

/// path_below(); also creates the folders in between. Errors: also kIo.
StatusOr<std::string> make_path_below(const std::string& folder, std::string_view name);

/// Fails unless a path, absolute or relative to the working folder, is inside a folder once
/// symbolic links and `..` are resolved. Neither needs to exist. Errors: kInvalidData with path and
/// folder.
Status check_inside(const std::string& folder, const std::string& path);

/// False if there is certainly no such file or folder. Where that cannot be found out, as without
/// permission to search a folder, opening the path reports why.
bool may_exist(const std::string& path);
/// True for a folder; false where that cannot be found out, as above.
bool is_folder(const std::string& path);

/// The path without trailing slashes; "/" is unchanged.
std::string without_slash(std::string folder);

}  // namespace millrace::io
