#include "io/read_at.h"

#include <cerrno>

#include <unistd.h>

namespace millrace::io {

ReadResult read_at(int fd, uint64_t offset, std::span<std::byte> to) {
  ReadResult result;
  while (result.bytes < to.size()) {
    const ssize_t got = ::pread(fd, to.data() + result.bytes, to.size() - result.bytes,
                                static_cast<off_t>(offset + result.bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) result.error = errno;
    if (got <= 0) break;
    result.bytes += static_cast<size_t>(got);
  }
  return result;
}

}  // namespace millrace::io
