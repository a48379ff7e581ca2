#include "jobs/config/slices_file.h"

#include <filesystem>
#include <utility>

#include "framework/base/file.h"
#include "io/paths.h"

namespace millrace::jobs {

std::string find_slices(const std::string& named, const std::string& program) {
  if (!named.empty()) return named;
  const std::filesystem::path beside =
      std::filesystem::path(program).parent_path().parent_path() / "slices.json";
  return io::may_exist(beside.string()) ? beside.string() : std::string();
}

StatusOr<transpiler::SlicesFile> read_slices(const std::string& path, int64_t max_bytes) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, max_bytes));
  StatusOr<transpiler::SlicesFile> slices = transpiler::parse_slices_json(text);
  if (!slices.ok()) return std::move(slices).status().in_file(path);
  // named for readers of the original's property, but sliced like any parameter in geo mode
  if (slices->properties.geo) slices->properties.distributed_lookup_table.clear();
  return slices;
}

}  // namespace millrace::jobs
