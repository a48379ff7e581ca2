#pragma once

#include <string>

#include "framework/base/file.h"
#include "framework/base/status.h"

/// Building blocks for writing a file that appears complete or not at all. Errors do not contain
/// the path; callers add it as the user wrote it.
namespace millrace {

/// The system's text for an errno value.
std::string error_text(int code);

/// "cannot open: ...": kNotFound if the file or its folder does not exist, else kIo.
Status open_error(int code);

/// The path that a write to `path` must replace: the target of a symbolic link, else `path` itself.
/// Errors: kInvalidData if the path exists and is not a regular file; kUsage if the file exists and
/// replace is kNo.
StatusOr<std::string> resolve_new_file(const std::string& path, Replace replace);

/// Creates a temporary file next to `path`, open for writing. Its name is unique even if another
/// thread writes the same file, or a killed process with the same process id left its temporary
/// file.
/// \param name  receives the name of the temporary file
/// \return the descriptor; negative on error, with errno set
int create_beside(const std::string& path, std::string& name);

/// Renames the finished temporary file to `path`. Errors: kUsage if `path` exists and replace is
/// kNo; kIo.
Status publish_file(const std::string& temporary, const std::string& path, Replace replace);

/// What kind of file a mode describes: "a directory", "a FIFO", "a socket", "a device".
const char* file_kind(unsigned mode);

}  // namespace millrace
