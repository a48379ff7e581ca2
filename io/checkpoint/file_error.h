#pragma once

#include <string>

#include "framework/base/status.h"

namespace millrace::io {

/// The error for a failed operating system call on a file: kNotFound for a missing path, kUsage if
/// the file already exists, kResource for a full disk, otherwise kIo.
/// \param what  for example "cannot write"
/// \param code  errno
Status file_error(const char* what, int code, const std::string& path);

}  // namespace millrace::io
