#include "tools/transpile/write_below.h"

#include <filesystem>

#include "framework/base/errors.h"

namespace millrace::tools {

Status write_below(Tool& tool, const std::string& folder, const std::string& name,
                   const std::string& bytes, Flush flush) {
  const std::filesystem::path path = std::filesystem::path(tool.common().output) / folder;
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return IoError("cannot create folder '{}': {}", path.string(), error.message());
  return tool.write_file((path / name).string(), bytes, flush);
}

}  // namespace millrace::tools
