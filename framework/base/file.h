#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/base/status.h"

namespace millrace {

/// Reads the whole content of a regular file; "-" reads standard input.
///
/// Directories, FIFOs, sockets and devices are rejected before anything is read, so a wrong path
/// cannot block. At most max_bytes are held in memory.
/// Errors: kNotFound; kInvalidData if the path is not a regular file; kResource above max_bytes;
/// kIo.
StatusOr<std::string> read_file(const std::string& path, int64_t max_bytes);

/// Whether write_file_atomically() may replace a file that exists.
enum class Replace { kNo, kYes };

/// Whether write_file_atomically() waits until the bytes are on the disk. Use kNo for files that
/// the same command can recreate: a power loss within the next seconds may leave them empty.
enum class Flush { kNo, kYes };

/// Writes a file under a temporary name in the same folder, flushes it to the disk and renames it,
/// so a reader sees the old content or the new content, never a mixture. A symbolic link is
/// followed; a device such as /dev/null is written to directly.
/// Errors: kUsage if the file exists and replace is kNo; kNotFound if the folder does not exist;
/// kIo. The temporary file is removed after an error.
Status write_file_atomically(const std::string& path, std::string_view bytes,
                             Replace replace = Replace::kNo, Flush flush = Flush::kYes);

}  // namespace millrace
