#include "jobs/checkpoint/staged_folder.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "io/checkpoint/file_calls.h"
#include "io/paths.h"

namespace millrace::jobs {

namespace fs = std::filesystem;

namespace staged_folder {
namespace {

// How often it is tried to lock a new folder, which another process may be about to remove.
constexpr int kMostTries = 50;
constexpr std::chrono::milliseconds kBetweenTries{20};

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

enum class Lock { kTaken, kOthers, kNoFolder, kNoLocks, kError };

// The lock belongs to the open folder, so the kernel releases it when the process ends.
// \param folder  set to the open folder, also for kNoLocks: a file system without locks
Lock take_lock(const std::string& path, int& folder) {
  folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (folder < 0) return errno == ENOENT ? Lock::kNoFolder : Lock::kError;
  if (::flock(folder, LOCK_EX | LOCK_NB) == 0) return Lock::kTaken;
  if (errno != EWOULDBLOCK) return Lock::kNoLocks;
  ::close(std::exchange(folder, -1));
  return Lock::kOthers;
}

bool still_has_its_name(int folder, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(folder, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// Removes what killed processes have left: folders <target>.tmp.<process id> without a lock. One
// that cannot be locked, as on a file system without locks, is left.
void remove_abandoned(const std::string& target) {
  std::error_code error;
  const std::string prefix = fs::path(target).filename().string() + ".tmp.";
  std::vector<std::string> found;
  for (fs::directory_iterator at(io::parent_of(target), error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(prefix) && is_number(name.substr(prefix.size())))
      found.push_back(at->path().string());
  }
  for (const std::string& path : found) {
    int folder = -1;
    if (take_lock(path, folder) == Lock::kTaken) fs::remove_all(path, error);
    if (folder >= 0) ::close(folder);
  }
}

}  // namespace
}  // namespace staged_folder

StagedFolder::StagedFolder(std::string target) : target_(io::without_slash(std::move(target))) {}

Status StagedFolder::stage() {
  using namespace staged_folder;
  remove_abandoned(target_);
  std::error_code error;
  const std::string name = fmt::format("{}.tmp.{}", target_, ::getpid());
  for (int i = 0; i < kMostTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(kBetweenTries);
    fs::create_directories(name, error);
    if (error) return IoError("cannot create the folder: {}", error.message()).in_file(name);
    if (take_lock(name, lock_) == Lock::kError)
      return IoError("cannot open the folder: {}", std::strerror(errno)).in_file(name);
    if (lock_ >= 0 && still_has_its_name(lock_, name)) {
      if (fs::is_empty(name, error)) {
        temporary_ = name;
        return Ok();
      }
      fs::remove_all(name, error);  // without locks: left by a killed process of the same number
    }
    unlock();
  }
  return IoError("another writer of '{}' has locked the folder", target_).in_file(name);
}

void StagedFolder::unlock() {
  if (lock_ >= 0) ::close(std::exchange(lock_, -1));
}

StatusOr<StagedFolder> StagedFolder::create(std::string target) {
  StagedFolder folder(std::move(target));
  std::error_code error;
  if (!fs::exists(folder.target_, error)) MILLRACE_RETURN_IF_ERROR(folder.stage());
  return folder;
}

StatusOr<StagedFolder> StagedFolder::create(std::string target, Replace replace) {
  StagedFolder folder(std::move(target));
  std::error_code error;
  folder.swaps_ = fs::exists(folder.target_, error);
  if (folder.swaps_ && replace == Replace::kNo && !fs::is_empty(folder.target_, error)) {
    return Status(StatusCode::kUsage, "output exists already")
        .in_file(folder.target_)
        .with_hint("options.replace replaces existing outputs");
  }
  MILLRACE_RETURN_IF_ERROR(folder.stage());
  return folder;
}

StagedFolder::StagedFolder(StagedFolder&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      lock_(std::exchange(other.lock_, -1)),
      swaps_(other.swaps_) {}

StagedFolder::~StagedFolder() {
  std::error_code error;
  if (!temporary_.empty()) fs::remove_all(temporary_, error);
  unlock();
}

Status StagedFolder::commit(bool sync) {
  if (temporary_.empty()) return Ok();
  std::error_code error;
  if (swaps_) {
    if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0)
      return IoError("cannot replace the folder: {}", std::strerror(errno)).in_file(target_);
    fs::remove_all(temporary_, error);
    temporary_.clear();
    unlock();
    return sync ? io::system_file_calls()->sync_folder(io::parent_of(target_)) : Ok();
  }
  if (fs::exists(target_, error))
    return Status(StatusCode::kUsage, "output exists already").in_file(target_);
  fs::rename(temporary_, target_, error);
  if (error) return IoError("cannot rename '{}': {}", temporary_, error.message()).in_file(target_);
  temporary_.clear();
  unlock();
  return sync ? io::system_file_calls()->sync_folder(io::parent_of(target_)) : Ok();
}

}  // namespace millrace::jobs
