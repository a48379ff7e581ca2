#include "jobs/ps/save_place.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "io/paths.h"

namespace millrace::jobs {

namespace paths_to_save {

namespace fs = std::filesystem;

// The rest of the path below the folder; empty: it is not below.
std::string rest_below(const std::string& folder, const std::string& path) {
  std::error_code error;
  const fs::path root = fs::weakly_canonical(fs::absolute(io::without_slash(folder)), error);
  const fs::path whole = error ? fs::path() : fs::weakly_canonical(fs::absolute(path), error);
  if (error) return {};
  const fs::path rest = whole.lexically_relative(root);
  return rest.empty() || *rest.begin() == ".." || rest == "." ? std::string() : rest.string();
}

}  // namespace paths_to_save

StatusOr<ps::DistributedSaveOptions> save_place(std::string given, const std::string& files_root) {
  const std::string path = io::without_slash(std::move(given));
  ps::DistributedSaveOptions options;
  if (files_root.empty()) {
    const std::filesystem::path whole(path);
    options.root = whole.has_parent_path() ? whole.parent_path().string() : ".";
    options.folder = whole.filename().string();
    return options;
  }
  options.root = files_root;
  options.folder = paths_to_save::rest_below(files_root, path);
  if (!options.folder.empty()) return options;
  return InvalidArgument(
             "cannot save to '{}': expected a folder below the allowed one, '{}', where servers "
             "save",
             path, files_root)
      .with_hint(fmt::format(
          "name it '{}'",
          (std::filesystem::path(files_root) / std::filesystem::path(path).filename()).string()));
}

}  // namespace millrace::jobs
