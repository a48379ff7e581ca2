#pragma once

#include <memory>
#include <string>

#include "io/checkpoint/file_calls.h"

namespace millrace::io {

/// A file whose bytes bypass the system's page cache (O_DIRECT). For files that must be on the disk
/// before the program continues: the processor copies the bytes only once and no cache pages are
/// allocated. Needs a buffer of 2 MiB. Bytes that cannot be written directly, mainly the end of the
/// file, are written through the page cache.
/// \param fd  open for writing and empty; the file closes it
/// \returns null if the file system does not support direct writes, or memory is short; fd then
///     stays open
std::unique_ptr<WritableFile> direct_file(int fd, const std::string& path);

}  // namespace millrace::io
