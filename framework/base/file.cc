#include "framework/base/file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/new_file.h"

namespace millrace {
namespace {

// Closes its descriptor when it goes out of scope; standard input stays open.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ > STDERR_FILENO) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }
  /// Closes now. The error of the last write may be reported here.
  int close() {
    const int fd = fd_;
    fd_ = -1;
    return ::close(fd);
  }

 private:
  int fd_;
};

Status too_large(int64_t max_bytes) {
  return {StatusCode::kResource, fmt::format("file is above the limit of {} bytes", max_bytes)};
}

StatusOr<std::string> read_all(int fd, int64_t size_hint, int64_t max_bytes) {
  constexpr int64_t kChunk = int64_t{1} << 20U;
  std::string out;
  size_t used = 0;
  // One byte more than the hint finds the end without another allocation. A pipe, or a file that
  // grows meanwhile, is read in further chunks.
  int64_t room = size_hint + 1;
  while (true) {
    room = std::min(room, max_bytes + 1 - static_cast<int64_t>(used));
    if (room <= 0) return too_large(max_bytes);
    out.resize(used + static_cast<size_t>(room));
    const ssize_t got = ::read(fd, out.data() + used, static_cast<size_t>(room));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return IoError("cannot read: {}", error_text(errno));
    used += static_cast<size_t>(got);
    if (got == 0) break;
    room = room > got ? room - got : kChunk;
  }
  out.resize(used);
  if (static_cast<int64_t>(used) > max_bytes) return too_large(max_bytes);
  return out;
}

StatusOr<std::string> read_regular(const std::string& path, int64_t max_bytes) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) return open_error(errno);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return IoError("cannot read: {}", error_text(errno));
  if (!S_ISREG(facts.st_mode))
    return InvalidData("expected a regular file, found {}", file_kind(facts.st_mode));
  if (facts.st_size > max_bytes) {
    return Status(StatusCode::kResource, fmt::format("file of {} bytes is above the limit of {}",
                                                     facts.st_size, max_bytes));
  }
  return read_all(file.get(), facts.st_size, max_bytes);
}

Status write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return IoError("cannot write: {}", error_text(errno));
    bytes.remove_prefix(static_cast<size_t>(done));
  }
  return Ok();
}

Status write_device(const std::string& path, std::string_view bytes) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (file.get() < 0) return open_error(errno);
  return write_all(file.get(), bytes);
}

Status write_and_publish(const std::string& path, std::string_view bytes, Replace replace,
                         Flush flush) {
  std::string temporary;
  Descriptor file(create_beside(path, temporary));
  if (file.get() < 0) return open_error(errno);
  Status status = write_all(file.get(), bytes);
  if (status.ok() && flush == Flush::kYes && ::fsync(file.get()) != 0)
    status = IoError("cannot write: {}", error_text(errno));
  if (file.close() != 0 && status.ok()) status = IoError("cannot write: {}", error_text(errno));
  if (status.ok()) status = publish_file(temporary, path, replace);
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

Status write_path(const std::string& path, std::string_view bytes, Replace replace, Flush flush) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return write_and_publish(path, bytes, replace, flush);
  if (S_ISCHR(facts.st_mode) || S_ISFIFO(facts.st_mode)) return write_device(path, bytes);
  MILLRACE_ASSIGN_OR_RETURN(const std::string target, resolve_new_file(path, replace));
  return write_and_publish(target, bytes, replace, flush);
}

}  // namespace

StatusOr<std::string> read_file(const std::string& path, int64_t max_bytes) {
  StatusOr<std::string> bytes =
      path == "-" ? read_all(STDIN_FILENO, 0, max_bytes) : read_regular(path, max_bytes);
  if (!bytes.ok()) return std::move(bytes).status().in_file(path == "-" ? "standard input" : path);
  return bytes;
}

Status write_file_atomically(const std::string& path, std::string_view bytes, Replace replace,
                             Flush flush) {
  return write_path(path, bytes, replace, flush).in_file(path);
}

}  // namespace millrace
