#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/base/status.h"

namespace millrace {

/// Whole content of a regular file; "-" reads standard input.
///
/// Directories, FIFOs, sockets and devices are refused before anything is read, so a wrong path
/// cannot block. At most max_bytes are held in memory.
/// Errors: kNotFound; kInvalidData if it is no regular file; kResource above max_bytes; kIo.
StatusOr<std::string> read_file(const std::string& path, int64_t max_bytes);

/// Whether write_file_atomically() may replace a file that exists.
enum class Replace { kNo, kYes };

/// Whether write_file_atomically() waits until the bytes are on the disk. kNo is for files that the
/// same command makes again: a loss of power within the next seconds may leave them empty.
enum class Flush { kNo, kYes };

/// Writes a file under a temporary name beside it, flushes it to the disk and renames it, so a
/// reader sees the old content or the new one and never a part. A symbolic link is followed;
/// a device such as /dev/null is written to directly.
/// Errors: kUsage if the file exists and replace is kNo; kNotFound if the folder does not exist;
/// kIo, after removing the temporary file.
Status write_file_atomically(const std::string& path, std::string_view bytes,
                             Replace replace = Replace::kNo, Flush flush = Flush::kYes);

}  // namespace millrace
