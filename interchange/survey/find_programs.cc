#include "interchange/survey/find_programs.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "framework/base/errors.h"
#include "interchange/from_pir/load.h"

namespace millrace::interchange {

namespace fs = std::filesystem;

bool is_onnx_name(llvm::StringRef filename) {
  return filename.endswith(".onnx");
}

bool is_pir_name(llvm::StringRef filename) {
  return filename.endswith(".json");
}

bool is_program_name(llvm::StringRef filename) {
  return filename == "__model__" || filename == "__startup__" || filename.endswith(".pdmodel") ||
         filename.endswith(".pb") || filename.endswith("_program") || filename.endswith(".desc") ||
         is_onnx_name(filename);
}

StatusOr<std::vector<std::string>> find_programs(const std::string& folder) {
  std::error_code error;
  const fs::file_status kind = fs::status(folder, error);
  if (kind.type() == fs::file_type::not_found)
    return Status(StatusCode::kNotFound, "no such file or folder: '" + folder + "'");
  if (kind.type() != fs::file_type::directory) return std::vector<std::string>{folder};
  std::vector<std::string> found;
  size_t entries = 0;
  fs::recursive_directory_iterator at(folder, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (++entries > kMostEntries)
      return Status(StatusCode::kResource,
                    "'" + folder + "' has more than " + std::to_string(kMostEntries) + " entries");
    std::error_code ignored;  // an entry that vanished is no regular file
    if (at->symlink_status(ignored).type() == fs::file_type::regular &&
        (is_program_name(at->path().filename().string()) ||
         (is_pir_name(at->path().string()) && is_pir_file(at->path().string()))))
      found.push_back(at->path().string());
  }
  if (error)
    return Status(StatusCode::kIo, "cannot read all of '" + folder + "': " + error.message());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace millrace::interchange
