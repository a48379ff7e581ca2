#include "io/byte_source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/new_file.h"
#include "io/read_at.h"

namespace millrace::io {
StatusOr<ByteSource> ByteSource::open(const std::string& path) {
  ByteSource source;
  source.name_ = path;
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  source.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (source.fd_ < 0) return open_error(errno).in_file(path);
  struct stat facts {};
  if (::fstat(source.fd_, &facts) != 0)
    return IoError("cannot read: {}", error_text(errno)).in_file(path);
  if (!S_ISREG(facts.st_mode)) {
    return InvalidData("expected a regular file, found {}", file_kind(facts.st_mode)).in_file(path);
  }
  source.size_ = static_cast<uint64_t>(facts.st_size);
  return source;
}

ByteSource ByteSource::of_memory(std::string_view bytes, std::string name) {
  ByteSource source;
  source.name_ = std::move(name);
  source.memory_ = bytes;
  source.size_ = bytes.size();
  return source;
}

ByteSource::ByteSource(ByteSource&& other) noexcept
    : name_(std::move(other.name_)),
      memory_(other.memory_),
      size_(other.size_),
      fd_(std::exchange(other.fd_, -1)) {}

ByteSource& ByteSource::operator=(ByteSource&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  return *this;
}

ByteSource::~ByteSource() {
  if (fd_ >= 0) ::close(fd_);
}

Status ByteSource::read(uint64_t offset, std::span<std::byte> to) const {
  if (offset > size_ || to.size() > size_ - offset) {
    return InvalidData("expected {} bytes at byte {}, found {}", to.size(), offset,
                       size_ - std::min(size_, offset));
  }
  if (fd_ < 0) {
    if (!to.empty()) std::memcpy(to.data(), memory_.data() + offset, to.size());
    return Ok();
  }
  const auto [bytes, error] = read_at(fd_, offset, to);
  if (error != 0) return IoError("cannot read at byte {}: {}", offset + bytes, error_text(error));
  if (bytes < to.size())
    return InvalidData("the file became shorter while it was read: it ends at byte {}",
                       offset + bytes);
  return Ok();
}

}  // namespace millrace::io
