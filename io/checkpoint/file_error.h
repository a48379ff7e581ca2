#pragma once

#include <string>

#include "framework/base/status.h"

namespace millrace::io {

/// The error of a call of the operating system on a file. kNotFound for a missing path, kUsage for
/// a file that is there already, kResource for a full disk, kIo for the rest.
/// \param what  "cannot write"
/// \param code  errno
Status file_error(const char* what, int code, const std::string& path);

}  // namespace millrace::io
