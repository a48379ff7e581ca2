#include "io/checkpoint/folder_lock.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;
using LockClock = std::chrono::steady_clock;

constexpr const char* kLockSuffix = ".lock";
constexpr std::chrono::milliseconds kBetweenLockTries{50};

std::string lock_path(const std::string& folder) {
  std::string path = folder;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path + kLockSuffix;
}

// A lock of the open file, not of the process: a second one in this process is refused, too.
int try_lock(int file) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return fcntl(file, F_OFD_SETLK, &whole) == 0 ? 0 : errno;
}

// True if the path still names the open file.
bool is_same_file(const std::string& path, int file) {
  struct stat open_file {};
  struct stat named {};
  return fstat(file, &open_file) == 0 && stat(path.c_str(), &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "an unknown machine";
  return name.data();
}

// For messages only: a disk without room for this line does not matter.
void write_holder(int file, const std::string& holder) {
  const std::string text = fmt::format("process {} on {}, {}", getpid(), host_name(), holder);
  if (ftruncate(file, 0) != 0) return;
  static_cast<void>(pwrite(file, text.data(), text.size(), 0) == 0);
}

std::string read_holder(int file) {
  std::array<char, 1024> text{};
  const ssize_t count = pread(file, text.data(), text.size(), 0);
  if (count <= 0) return "another process";
  return printable({text.data(), static_cast<size_t>(count)});
}

// Makes one attempt. \returns the locked file, or none if another process has it; `found` then
// describes that process.
StatusOr<std::optional<int>> try_take(const std::string& path, std::string& found) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return IoError("cannot open the lock file: {}", std::strerror(errno)).in_file(path);
  const int problem = try_lock(file);
  // another process may have removed the file after this one opened it
  if (problem == 0 && is_same_file(path, file)) return std::optional<int>(file);
  if (problem != 0) found = read_holder(file);
  close(file);
  if (problem == 0 || problem == EAGAIN || problem == EACCES || problem == EINTR)
    return std::optional<int>();
  return IoError("cannot lock the file: {}", std::strerror(problem)).in_file(path);
}

}  // namespace

StatusOr<FolderLock> FolderLock::take(const std::string& folder, const std::string& holder,
                                      std::chrono::milliseconds patience) {
  std::string path = lock_path(folder);
  const fs::path above = fs::path(path).parent_path();
  std::error_code error;
  if (!above.empty()) fs::create_directories(above, error);
  if (error)
    return IoError("cannot create the folder: {}", error.message()).in_file(above.string());
  const auto deadline = LockClock::now() + patience;
  for (;;) {
    std::string found = "another process";
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<int> file, try_take(path, found));
    if (file) {
      write_holder(*file, holder);
      return FolderLock(std::move(path), *file);
    }
    if (LockClock::now() >= deadline) {
      return Status(StatusCode::kResource,
                    fmt::format("the folder is in use by {}: two writers would mix their "
                                "checkpoints",
                                found))
          .in_file(folder)
          .with_hint("end that process, or name another folder");
    }
    std::this_thread::sleep_for(kBetweenLockTries);
  }
}

FolderLock::~FolderLock() {
  if (file_ >= 0) close(file_);
}

bool FolderLock::is_held() const {
  return file_ >= 0 && is_same_file(path_, file_);
}

StatusOr<std::vector<FolderLock>> lock_if_used(const std::string& folder,
                                               const std::string& holder) {
  std::vector<FolderLock> locks;
  std::error_code error;
  if (!fs::exists(lock_path(folder), error)) return locks;
  MILLRACE_ASSIGN_OR_RETURN(FolderLock lock, FolderLock::take(folder, holder));
  locks.push_back(std::move(lock));
  return locks;
}

StatusOr<std::vector<FolderLock>> lock_used_in(const std::string& root, const std::string& holder) {
  std::vector<std::string> folders;
  std::error_code error;
  for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == kLockSuffix)
      folders.push_back((at->path().parent_path() / at->path().stem()).string());
  }
  std::ranges::sort(folders);
  std::vector<FolderLock> locks;
  for (const std::string& folder : folders) {
    MILLRACE_ASSIGN_OR_RETURN(FolderLock lock, FolderLock::take(folder, holder));
    locks.push_back(std::move(lock));
  }
  return locks;
}

}  // namespace millrace::io
