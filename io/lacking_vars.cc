#include "io/lacking_vars.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/model_folder.h"
#include "io/npz.h"

namespace millrace::io {

std::vector<std::string> lacking_vars(const std::string& path, const Program& program) {
  std::vector<std::string> lacking;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return lacking;
  const StatusOr<NpzFile> archive = NpzFile::open(path);
  if (!archive.ok()) return lacking;  // a combined file of the original
  const std::vector<std::string> names = archive->names();
  const std::set<std::string> found(names.begin(), names.end());
  for (const ParamSpec& spec : persistables_of(program))
    if (!found.contains(spec.name)) lacking.push_back(spec.name);
  return lacking;
}

std::vector<std::string> kept_vars(const std::string& path, const Program& program,
                                   const Scope& scope) {
  std::vector<std::string> kept = lacking_vars(path, program);
  std::erase_if(kept, [&](const std::string& name) {
    const Value* const value = scope.find_local(name);
    return value == nullptr || !value->initialized();
  });
  return kept;
}

std::string short_list(const std::vector<std::string>& names) {
  constexpr size_t kShown = 10;
  const size_t shown = std::min(names.size(), kShown);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

std::string lacking_warning(const std::string& path, const std::vector<std::string>& names) {
  return fmt::format("{} has no values for these vars, which keep those of the startup program: {}",
                     path, short_list(names));
}

}  // namespace millrace::io
