#include "tools/checkpoint/staged_folder.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "io/checkpoint/file_calls.h"

namespace millrace::tools {

namespace fs = std::filesystem;

StatusOr<StagedFolder> StagedFolder::create(std::string target) {
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  StagedFolder folder(std::move(target));
  std::error_code error;
  if (fs::exists(folder.target_, error)) return folder;
  const std::string name = fmt::format("{}.tmp.{}", folder.target_, ::getpid());
  fs::remove_all(name, error);  // of a killed process of the same number
  fs::create_directories(name, error);
  if (error) return IoError("cannot create the folder: {}", error.message()).in_file(name);
  folder.temporary_ = name;
  return folder;
}

StagedFolder::StagedFolder(StagedFolder&& other) noexcept
    : target_(std::move(other.target_)), temporary_(std::exchange(other.temporary_, {})) {}

StagedFolder::~StagedFolder() {
  std::error_code error;
  if (!temporary_.empty()) fs::remove_all(temporary_, error);
}

Status StagedFolder::commit(bool sync) {
  if (temporary_.empty()) return Ok();
  std::error_code error;
  if (fs::exists(target_, error))
    return Status(StatusCode::kUsage, "output exists already").in_file(target_);
  fs::rename(temporary_, target_, error);
  if (error) return IoError("cannot rename '{}': {}", temporary_, error.message()).in_file(target_);
  temporary_.clear();
  return sync ? io::system_file_calls()->sync_folder(io::parent_of(target_)) : Ok();
}

}  // namespace millrace::tools
