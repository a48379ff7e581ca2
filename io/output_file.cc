#include "io/output_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "io/write_pieces.h"

namespace millrace::io {
namespace {

Status failed(const char* what, int code, const std::string& path) {
  const std::string text = std::generic_category().message(code);
  if (code == ENOENT || code == ENOTDIR) return NotFound("{}: {}", what, text).in_file(path);
  return IoError("{}: {}", what, text).in_file(path);
}

Status exists_error(const std::string& path) {
  return Status(StatusCode::kUsage, "output exists already")
      .in_file(path)
      .with_hint("--force replaces existing outputs");
}

// Where the bytes go in the end: the target of a link.
StatusOr<std::string> resolve(const std::string& path, Replace replace) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return path;
  if (!S_ISREG(facts.st_mode)) {
    return InvalidData("expected a regular file, found {}",
                       S_ISDIR(facts.st_mode) ? "a directory" : "a device, FIFO or socket")
        .in_file(path);
  }
  if (replace == Replace::kNo) return exists_error(path);
  char* const real = ::realpath(path.c_str(), nullptr);
  std::string target = real == nullptr ? path : std::string(real);
  ::free(real);
  return target;
}

// A rename reaches the disk with its folder.
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
  MILLRACE_ASSIGN_OR_RETURN(file.path_, resolve(path, replace));
  // Another writer or what a killed process of the same number left may hold a name.
  constexpr int kTries = 100;
  std::string name;
  for (int i = 0; i < kTries && file.fd_ < 0; ++i) {
    name = fmt::format("{}.tmp.{}.{}", file.path_, ::getpid(), i);
    file.fd_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file.fd_ < 0 && errno != EEXIST) break;
  }
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
  // The error of the last write may show here.
  if (::close(std::exchange(fd_, -1)) != 0) return failed("cannot write", errno, path_);
  if (replace_ == Replace::kNo) {
    // link() fails where the name exists, which rename() does not.
    if (::link(temporary_.c_str(), path_.c_str()) == 0) {
      ::unlink(std::exchange(temporary_, {}).c_str());
      return sync ? sync_folder_of(path_) : Ok();
    }
    // File systems without hard links: look, then rename.
    if (errno == EEXIST || ::access(path_.c_str(), F_OK) == 0) return exists_error(path_);
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    return failed("cannot rename the temporary file", errno, path_);
  temporary_.clear();
  return sync ? sync_folder_of(path_) : Ok();
}

}  // namespace millrace::io
