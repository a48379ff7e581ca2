#include "framework/base/new_file.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/errors.h"

namespace millrace {
namespace {

Status exists_error() {
  return Status(StatusCode::kUsage, "output exists already")
      .with_hint("--force replaces existing outputs");
}

}  // namespace

std::string error_text(int code) {
  return std::generic_category().message(code);
}

const char* file_kind(unsigned mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "a special file";
}

Status open_error(int code) {
  if (code == ENOENT || code == ENOTDIR) return NotFound("cannot open: {}", error_text(code));
  return IoError("cannot open: {}", error_text(code));
}

StatusOr<std::string> resolve_new_file(const std::string& path, Replace replace) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return path;
  if (!S_ISREG(facts.st_mode))
    return InvalidData("expected a regular file, found {}", file_kind(facts.st_mode));
  if (replace == Replace::kNo) return exists_error();
  char* const real = ::realpath(path.c_str(), nullptr);
  std::string target = real == nullptr ? path : std::string(real);
  ::free(real);
  return target;
}

int create_beside(const std::string& path, std::string& name) {
  constexpr int kMost = 1000;
  int fd = -1;
  for (int i = 0; i < kMost; ++i) {
    name = fmt::format("{}.tmp.{}.{}", path, ::getpid(), i);
    fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) break;
  }
  return fd;
}

Status publish_file(const std::string& temporary, const std::string& path, Replace replace) {
  if (replace == Replace::kNo) {
    // Unlike rename(), link() fails if the name exists.
    if (::link(temporary.c_str(), path.c_str()) == 0) {
      ::unlink(temporary.c_str());
      return Ok();
    }
    if (errno == EEXIST) return exists_error();
    // File systems without hard links: check first, then rename.
    if (::access(path.c_str(), F_OK) == 0) return exists_error();
  }
  if (::rename(temporary.c_str(), path.c_str()) == 0) return Ok();
  return IoError("cannot rename '{}': {}", temporary, error_text(errno));
}

}  // namespace millrace
