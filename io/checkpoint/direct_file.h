#pragma once

#include <memory>
#include <string>

#include "io/checkpoint/file_calls.h"

namespace millrace::io {

/// A file whose bytes go past the system's cache (O_DIRECT), for those that are to be on the disk
/// before anything goes on: the processor copies them once and makes no pages of them. Takes 2 MiB.
/// What the disk cannot take so, the end of the file above all, goes the usual way.
/// \param fd  open for writing and empty; the file closes it
/// \returns null if the file system knows no such writes, or memory is short; fd stays open then
std::unique_ptr<WritableFile> direct_file(int fd, const std::string& path);

}  // namespace millrace::io
