#include "jobs/ps/save_place.h"

#include <filesystem>
#include <utility>

#include "io/paths.h"

namespace millrace::jobs {

ps::DistributedSaveOptions save_place(std::string given, const std::string& files_root) {
  const std::string path = io::without_slash(std::move(given));
  ps::DistributedSaveOptions options;
  const std::string root =
      files_root.empty() || files_root.back() == '/' ? files_root : files_root + '/';
  if (!root.empty() && path.starts_with(root)) {
    options.root = files_root;
    options.folder = path.substr(root.size());
    return options;
  }
  const std::filesystem::path whole(path);
  options.root = whole.has_parent_path() ? whole.parent_path().string() : ".";
  options.folder = whole.filename().string();
  return options;
}

}  // namespace millrace::jobs
