#include "tools/ps/save_place.h"

#include <filesystem>

namespace millrace::tools {

ps::DistributedSaveOptions save_place(std::string path, const std::string& files_root) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
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

}  // namespace millrace::tools
