#include "io/checkpoint/file_error.h"

#include <cerrno>

#include "framework/base/errors.h"
#include "framework/base/new_file.h"

namespace millrace::io {

Status file_error(const char* what, int code, const std::string& path) {
  const std::string text = error_text(code);
  if (code == ENOENT || code == ENOTDIR) return NotFound("{}: {}", what, text).in_file(path);
  if (code == EEXIST) return Status(StatusCode::kUsage, "the file exists already").in_file(path);
  if (code == ENOSPC || code == EDQUOT || code == EFBIG)
    return Status(StatusCode::kResource, fmt::format("{}: {}", what, text)).in_file(path);
  return IoError("{}: {}", what, text).in_file(path);
}

}  // namespace millrace::io
