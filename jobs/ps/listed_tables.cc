#include "jobs/ps/listed_tables.h"

#include <cstdint>
#include <utility>

#include "framework/base/file.h"
#include "io/paths.h"

namespace millrace::jobs {
namespace {

constexpr int64_t kLargestManifest = 256 << 20;

}  // namespace

StatusOr<std::optional<io::ParamsManifest::TablePart>> find_listed_table(
    const std::string& folder) {
  using Part = std::optional<io::ParamsManifest::TablePart>;
  const std::string path = io::params_manifest_path(folder);
  if (!io::may_exist(path)) return Part();
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kLargestManifest));
  StatusOr<io::ParamsManifest> manifest = io::parse_params_manifest(text);
  if (!manifest.ok()) return std::move(manifest).status().in_file(path);
  return manifest->tables.empty() ? Part() : Part(manifest->tables.front());
}

}  // namespace millrace::jobs
