#include "io/checkpoint/file_calls.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/new_file.h"
#include "io/checkpoint/direct_file.h"
#include "io/checkpoint/file_error.h"
#include "io/read_at.h"
#include "io/write_pieces.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

// Smaller files gain nothing from bypassing the page cache.
constexpr uint64_t kWorthDirect = uint64_t{8} << 20U;

// True for tmpfs, where preallocation only costs time: fallocate() allocates page by page, and
// write() then looks up each page again.
bool is_in_memory(int fd) {
  constexpr long kTmpfs = 0x01021994;  // statfs(2)
  struct statfs facts {};
  return ::fstatfs(fd, &facts) == 0 && facts.f_type == kTmpfs;
}

class SystemWritable final : public WritableFile {
 public:
  SystemWritable(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~SystemWritable() override {
    if (fd_ >= 0) ::close(fd_);
  }

  Status write(std::span<const std::string_view> pieces) override {
    const int code = write_pieces(fd_, pieces);
    return code == 0 ? Ok() : file_error("cannot write", code, path_);
  }

  Status sync() override {
    return ::fsync(fd_) == 0 ? Ok() : file_error("cannot flush", errno, path_);
  }

  Status close() override {
    if (fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0) return Ok();
    return file_error("cannot write", errno, path_);
  }

 private:
  int fd_;
  std::string path_;
};

class SystemReadable final : public ReadableFile {
 public:
  SystemReadable(int fd, std::string path, uint64_t size)
      : fd_(fd), path_(std::move(path)), size_(size) {}
  ~SystemReadable() override { ::close(fd_); }

  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] uint64_t size() const override { return size_; }

  void will_read(uint64_t offset, uint64_t bytes) const override {
    ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                    POSIX_FADV_WILLNEED);
  }

  Status read(uint64_t offset, std::span<std::byte> to) const override {
    const auto [bytes, error] = read_at(fd_, offset, to);
    if (error != 0) return file_error("cannot read", error, path_);
    if (bytes == to.size()) return Ok();
    return InvalidData("expected {} more bytes at byte {}, found the end of the file",
                       to.size() - bytes, offset + bytes)
        .in_file(path_);
  }

 private:
  int fd_;
  std::string path_;
  uint64_t size_;
};

class SystemFileCalls final : public FileCalls {
 public:
  StatusOr<std::unique_ptr<WritableFile>> create(const std::string& path,
                                                 const NewFile& wanted) override {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return file_error("cannot create", errno, path);
    const bool in_memory = is_in_memory(fd);
    std::unique_ptr<WritableFile> file;
    if (wanted.sync && !in_memory && wanted.bytes >= kWorthDirect) file = direct_file(fd, path);
    if (file == nullptr) file = std::make_unique<SystemWritable>(fd, path);
    // Reserve contiguous disk space, so that a full disk is detected before anything is written. If
    // the file system does not support this, the writes detect it.
    constexpr uint64_t kWorthIt = uint64_t{1} << 20U;
    if (wanted.bytes >= kWorthIt && !in_memory &&
        ::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(wanted.bytes)) != 0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
      Status status = file_error("cannot write", errno, path);
      ::unlink(path.c_str());
      return status;
    }
    return file;
  }

  StatusOr<std::unique_ptr<ReadableFile>> open(const std::string& path) override {
    // O_NONBLOCK: opening a FIFO must not wait for its writer.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    if (fd < 0 && errno == ELOOP)
      return InvalidData("expected a regular file, found a symbolic link").in_file(path);
    if (fd < 0) return file_error("cannot open", errno, path);
    struct stat facts {};
    const bool known = ::fstat(fd, &facts) == 0;
    if (known && S_ISREG(facts.st_mode)) {
      std::unique_ptr<ReadableFile> file =
          std::make_unique<SystemReadable>(fd, path, static_cast<uint64_t>(facts.st_size));
      return file;
    }
    const int code = errno;
    ::close(fd);
    if (!known) return file_error("cannot read", code, path);
    return InvalidData("expected a regular file, found {}", file_kind(facts.st_mode)).in_file(path);
  }

  Status rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) == 0) return Ok();
    return file_error("cannot rename the temporary file", errno, to);
  }

  Status remove(const std::string& path) override {
    if (::unlink(path.c_str()) == 0 || errno == ENOENT) return Ok();
    return file_error("cannot remove", errno, path);
  }

  Status remove_folder(const std::string& path) override {
    if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return Ok();
    return file_error("cannot remove", errno, path);
  }

  StatusOr<bool> make_folder(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) == 0) return true;
    const int code = errno;
    struct stat facts {};
    if (code == EEXIST && ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) return false;
    if (code == EEXIST || code == ENOTDIR)
      return InvalidData("expected a folder, found a file").in_file(path);
    return file_error("cannot create the folder", code, path);
  }

  Status sync_folder(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return file_error("cannot open the folder", errno, path);
    const int result = ::fsync(fd);
    const int code = errno;
    ::close(fd);
    // Some file systems cannot flush folders.
    if (result != 0 && code != EINVAL) return file_error("cannot flush the folder", code, path);
    return Ok();
  }

  StatusOr<std::vector<std::string>> list(const std::string& path) override {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
      names.push_back(it->path().filename().string());
    if (error) return file_error("cannot list", error.value(), path);
    std::ranges::sort(names);
    return names;
  }
};

}  // namespace

WritableFile::~WritableFile() = default;
ReadableFile::~ReadableFile() = default;
FileCalls::~FileCalls() = default;

std::string parent_of(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  const size_t slash = end == std::string::npos ? 0 : path.rfind('/', end);
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

StatusOr<std::unique_ptr<WritableFile>> ForwardedFileCalls::create(const std::string& path,
                                                                   const NewFile& file) {
  return calls_->create(path, file);
}
StatusOr<std::unique_ptr<ReadableFile>> ForwardedFileCalls::open(const std::string& path) {
  return calls_->open(path);
}
Status ForwardedFileCalls::rename(const std::string& from, const std::string& to) {
  return calls_->rename(from, to);
}
Status ForwardedFileCalls::remove(const std::string& path) {
  return calls_->remove(path);
}
Status ForwardedFileCalls::remove_folder(const std::string& path) {
  return calls_->remove_folder(path);
}
StatusOr<bool> ForwardedFileCalls::make_folder(const std::string& path) {
  return calls_->make_folder(path);
}
Status ForwardedFileCalls::sync_folder(const std::string& path) {
  return calls_->sync_folder(path);
}
StatusOr<std::vector<std::string>> ForwardedFileCalls::list(const std::string& path) {
  return calls_->list(path);
}

Status make_folders(FileCalls& calls, const std::string& path, bool sync) {
  StatusOr<bool> made = calls.make_folder(path);
  if (!made.ok() && made.status().code() == StatusCode::kNotFound && parent_of(path) != path) {
    MILLRACE_RETURN_IF_ERROR(make_folders(calls, parent_of(path), sync));
    made = calls.make_folder(path);
  }
  if (!made.ok()) return std::move(made).status();
  return *made && sync ? calls.sync_folder(parent_of(path)) : Ok();
}

std::shared_ptr<FileCalls> system_file_calls() {
  return std::make_shared<SystemFileCalls>();
}

}  // namespace millrace::io
