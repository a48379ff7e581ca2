#pragma once

#include <string>

#include "framework/base/file.h"
#include "framework/base/status.h"

/// The steps by which a file appears complete or not at all. For those who write files; errors have
/// no path, which callers know as their users wrote it.
namespace millrace {

/// What the system says of its error number.
std::string error_text(int code);

/// "cannot open: ...": kNotFound where there is no such file or folder, else kIo.
Status open_error(int code);

/// Where the bytes of a file at `path` go: the target of a link; `path` if there is nothing yet.
/// Errors: kInvalidData if there is something that is no regular file; kUsage if the file exists
/// and replace is kNo.
StatusOr<std::string> resolve_new_file(const std::string& path, Replace replace);

/// Creates a temporary file beside `path`, to be written. Another thread may be writing the same
/// file, and a killed process of the same number may have left its own.
/// \param name  its name
/// \return the descriptor; negative: errno says why
int create_beside(const std::string& path, std::string& name);

/// Gives the finished temporary file its name. Errors: kUsage if it exists and replace is kNo; kIo.
Status publish_file(const std::string& temporary, const std::string& path, Replace replace);

/// What stands in a file's place: "a directory", "a FIFO", "a socket", "a device".
const char* file_kind(unsigned mode);

}  // namespace millrace
