#include "ps/table/large_scale_kv.h"

#include <utility>

#include "framework/base/errors.h"
#include "ps/table/table_files.h"

namespace millrace::ps {
namespace {

// Accepts only names of files directly in the folder, not paths that lead out of it.
bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

Status LargeScaleKv::add(const std::string& var, const std::string& origin,
                         std::shared_ptr<SparseTable> table) {
  for (const std::string& name : {var, origin}) {
    if (!is_file_name(name))
      return InvalidArgument("'{}' is not a valid file name for a table", name);
  }
  if (!entries_.emplace(var, Entry{origin, std::move(table)}).second)
    return InvalidArgument("table '{}' already exists", var);
  return Ok();
}

StatusOr<const LargeScaleKv::Entry*> LargeScaleKv::find(const std::string& var) const {
  const auto found = entries_.find(var);
  if (found == entries_.end()) return NotFound("this server has no table '{}'", var);
  return &found->second;
}

StatusOr<int64_t> LargeScaleKv::save(const std::string& var, const std::string& folder) const {
  MILLRACE_ASSIGN_OR_RETURN(const Entry* const entry, find(var));
  return save_rows(*entry->table, fmt::format("{}/{}/{}", folder, entry->origin, var), 0);
}

StatusOr<int64_t> LargeScaleKv::load(const std::string& var, const std::string& folder) const {
  MILLRACE_ASSIGN_OR_RETURN(const Entry* const entry, find(var));
  return load_rows(*entry->table, fmt::format("{}/{}/{}", folder, entry->origin, var));
}

StatusOr<int64_t> LargeScaleKv::size(const std::string& var) const {
  MILLRACE_ASSIGN_OR_RETURN(const Entry* const entry, find(var));
  return entry->table->size();
}

}  // namespace millrace::ps
