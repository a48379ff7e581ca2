#include "jobs/checkpoint/staged_folder.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "io/checkpoint/file_calls.h"
#include "io/paths.h"

namespace millrace::jobs {

namespace fs = std::filesystem;

StagedFolder::StagedFolder(std::string target) : target_(io::without_slash(std::move(target))) {}

Status StagedFolder::stage() {
  std::error_code error;
  const std::string name = fmt::format("{}.tmp.{}", target_, ::getpid());
  fs::remove_all(name, error);  // left by a killed process with the same process id
  fs::create_directories(name, error);
  if (error) return IoError("cannot create the folder: {}", error.message()).in_file(name);
  temporary_ = name;
  return Ok();
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
      swaps_(other.swaps_) {}

StagedFolder::~StagedFolder() {
  std::error_code error;
  if (!temporary_.empty()) fs::remove_all(temporary_, error);
}

Status StagedFolder::commit(bool sync) {
  if (temporary_.empty()) return Ok();
  std::error_code error;
  if (swaps_) {
    if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0)
      return IoError("cannot replace the folder: {}", std::strerror(errno)).in_file(target_);
    fs::remove_all(temporary_, error);
    temporary_.clear();
    return sync ? io::system_file_calls()->sync_folder(io::parent_of(target_)) : Ok();
  }
  if (fs::exists(target_, error))
    return Status(StatusCode::kUsage, "output exists already").in_file(target_);
  fs::rename(temporary_, target_, error);
  if (error) return IoError("cannot rename '{}': {}", temporary_, error.message()).in_file(target_);
  temporary_.clear();
  return sync ? io::system_file_calls()->sync_folder(io::parent_of(target_)) : Ok();
}

}  // namespace millrace::jobs
