#include "io/write_pieces.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

#include <sys/uio.h>

namespace millrace::io {

int write_pieces(int fd, std::span<const std::string_view> pieces) {
  constexpr size_t kBatch = 512;  // below IOV_MAX
  std::array<iovec, kBatch> batch{};
  size_t next = 0;
  size_t skipped = 0;  // bytes of the piece at `next` that are already written
  while (next < pieces.size()) {
    const size_t count = std::min(kBatch, pieces.size() - next);
    for (size_t i = 0; i < count; ++i) {
      const std::string_view piece = pieces[next + i].substr(i == 0 ? skipped : 0);
      batch[i] = {const_cast<char*>(piece.data()), piece.size()};
    }
    const ssize_t done = ::writev(fd, batch.data(), static_cast<int>(count));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    auto written = static_cast<size_t>(done) + skipped;
    while (next < pieces.size() && written >= pieces[next].size()) written -= pieces[next++].size();
    skipped = written;
  }
  return 0;
}

}  // namespace millrace::io
