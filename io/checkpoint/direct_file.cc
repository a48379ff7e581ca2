#include "io/checkpoint/direct_file.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "io/checkpoint/file_error.h"
#include "io/write_pieces.h"

namespace millrace::io {
namespace {

// Memory, offsets and sizes of direct writes must be multiples of the disk's sector size. No disk
// has larger sectors than this.
constexpr size_t kSector = 4096;
// Larger blocks are not faster on a solid-state disk.
constexpr size_t kBlock = size_t{2} << 20U;

bool set_direct(int fd, bool direct) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) return false;
  return ::fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

struct Free {
  void operator()(char* memory) const { std::free(memory); }
};
using Block = std::unique_ptr<char, Free>;

class DirectWritable final : public WritableFile {
 public:
  DirectWritable(int fd, std::string path, Block block)
      : fd_(fd), path_(std::move(path)), block_(std::move(block)) {}
  ~DirectWritable() override {
    if (fd_ >= 0) ::close(fd_);
  }

  Status write(std::span<const std::string_view> pieces) override {
    for (std::string_view piece : pieces) {
      while (!piece.empty()) {
        const size_t size = std::min(piece.size(), kBlock - filled_);
        std::memcpy(block_.get() + filled_, piece.data(), size);
        filled_ += size;
        piece.remove_prefix(size);
        if (filled_ == kBlock) MILLRACE_RETURN_IF_ERROR(flush());
      }
    }
    return Ok();
  }

  Status sync() override {
    MILLRACE_RETURN_IF_ERROR(flush());
    return ::fsync(fd_) == 0 ? Ok() : file_error("cannot flush", errno, path_);
  }

  Status close() override {
    if (fd_ < 0) return Ok();
    Status flushed = flush();
    const bool closed = ::close(std::exchange(fd_, -1)) == 0;
    if (!flushed.ok() || closed) return flushed;
    return file_error("cannot write", errno, path_);
  }

 private:
  Status flush() {
    const size_t size = std::exchange(filled_, 0);
    size_t done = 0;
    const size_t sectors = size / kSector * kSector;
    while (direct_ && done < sectors) {
      const ssize_t written = ::write(fd_, block_.get() + done, sectors - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno != EINVAL) return file_error("cannot write", errno, path_);
      if (written > 0) done += static_cast<size_t>(written);
      // A write to a nearly full disk may end within a sector. EINVAL: another sector size.
      if (written < 0 || done % kSector != 0) MILLRACE_RETURN_IF_ERROR(leave_direct());
    }
    if (done == size) return Ok();
    MILLRACE_RETURN_IF_ERROR(leave_direct());
    const std::string_view rest(block_.get() + done, size - done);
    const int code = write_pieces(fd_, {&rest, 1});
    return code == 0 ? Ok() : file_error("cannot write", code, path_);
  }

  Status leave_direct() {
    if (!direct_) return Ok();
    direct_ = false;
    return set_direct(fd_, false) ? Ok() : file_error("cannot write", errno, path_);
  }

  int fd_;
  std::string path_;
  Block block_;
  size_t filled_ = 0;
  bool direct_ = true;
};

}  // namespace

std::unique_ptr<WritableFile> direct_file(int fd, const std::string& path) {
  Block block(static_cast<char*>(std::aligned_alloc(kSector, kBlock)));
  if (block == nullptr || !set_direct(fd, true)) return nullptr;
  return std::make_unique<DirectWritable>(fd, path, std::move(block));
}

}  // namespace millrace::io
