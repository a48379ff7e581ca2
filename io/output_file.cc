#include "io/output_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/new_file.h"
#include "io/write_pieces.h"

namespace millrace::io {
namespace {

Status failed(const char* what, int code, const std::string& path) {
  if (code == ENOENT || code == ENOTDIR)
    return NotFound("{}: {}", what, error_text(code)).in_file(path);
  return IoError("{}: {}", what, error_text(code)).in_file(path);
}

// Flush the folder too: the rename is only on the disk after that.
Status sync_folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return failed("cannot open the folder", errno, path);
  const int result = ::fsync(fd);
  const int code = errno;
  ::close(fd);
  // Some file systems cannot flush folders.
  if (result != 0 && code != EINVAL) return failed("cannot flush the folder", code, path);
  return Ok();
}

}  // namespace

StatusOr<OutputFile> OutputFile::create(const std::string& path, Replace replace) {
  OutputFile file;
  file.replace_ = replace;
  StatusOr<std::string> target = resolve_new_file(path, replace);
  if (!target.ok()) return std::move(target).status().in_file(path);
  file.path_ = *std::move(target);
  std::string name;
  file.fd_ = create_beside(file.path_, name);
  if (file.fd_ < 0) return failed("cannot create", errno, path);
  file.temporary_ = name;
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      replace_(other.replace_),
      fd_(std::exchange(other.fd_, -1)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status OutputFile::write(std::span<const std::string_view> pieces) {
  const int code = write_pieces(fd_, pieces);
  return code == 0 ? Ok() : failed("cannot write", code, path_);
}

Status OutputFile::commit(bool sync) {
  if (sync && ::fsync(fd_) != 0) return failed("cannot write", errno, path_);
  // The error of the last write may be reported here.
  if (::close(std::exchange(fd_, -1)) != 0) return failed("cannot write", errno, path_);
  MILLRACE_RETURN_IF_ERROR(publish_file(temporary_, path_, replace_).in_file(path_));
  temporary_.clear();
  return sync ? sync_folder_of(path_) : Ok();
}

}  // namespace millrace::io
