#include "io/paths.h"

#include <filesystem>
#include <system_error>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

Status check_name(const std::string& folder, std::string_view name) {
  const auto refuse = [&](const char* why) {
    return InvalidData("{} as the name of a file in '{}': {}", in_quotes(name), folder, why);
  };
  if (name.empty()) return refuse("it is empty");
  if (name.find('\0') != std::string_view::npos) return refuse("it holds a NUL byte");
  if (name.front() == '/') return refuse("it is an absolute path");
  size_t begin = 0;
  while (begin <= name.size()) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return refuse("it leads out of the folder");
    begin = end + 1;
  }
  return Ok();
}

// Compares both after resolving symbolic links; the part of a path that does not exist is kept as
// it is.
bool is_below(const fs::path& folder, const fs::path& path) {
  std::error_code error;
  const fs::path root = fs::weakly_canonical(folder, error);
  const fs::path real = error ? fs::path() : fs::weakly_canonical(path, error);
  if (error) return false;
  const auto [left, right] = std::mismatch(root.begin(), root.end(), real.begin(), real.end());
  return left == root.end() || (std::next(left) == root.end() && left->empty());
}

}  // namespace

StatusOr<std::string> path_below(const std::string& folder, std::string_view name) {
  MILLRACE_RETURN_IF_ERROR(check_name(folder, name));
  const fs::path path = fs::path(folder.empty() ? "." : folder) / name;
  if (!is_below(folder.empty() ? "." : folder, path)) {
    return InvalidData("{} as the name of a file in '{}': a symbolic link leads out of the folder",
                       in_quotes(name), folder);
  }
  return path.string();
}

StatusOr<std::string> make_path_below(const std::string& folder, std::string_view name) {
  MILLRACE_ASSIGN_OR_RETURN(std::string path, path_below(folder, name));
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) return IoError("cannot create its folder: {}", error.message()).in_file(path);
  return path;
}

Status check_inside(const std::string& folder, const std::string& path) {
  if (is_below(folder, path)) return Ok();
  return InvalidData("the path {} is outside of the allowed folder '{}'", in_quotes(path), folder);
}

std::string without_slash(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

bool may_exist(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::exists(path, unknown) || unknown;
}

bool is_folder(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::is_directory(path, unknown);
}

}  // namespace millrace::io
