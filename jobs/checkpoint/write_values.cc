#include "jobs/checkpoint/write_values.h"

#include <string_view>

#include "io/output_file.h"
#include "io/params.h"
#include "io/params_manifest.h"
#include "jobs/checkpoint/staged_folder.h"

namespace millrace::jobs {

Status write_combined(const std::string& path, const std::vector<std::string>& names,
                      const LoadValue& load, Replace replace, bool sync) {
  MILLRACE_ASSIGN_OR_RETURN(io::OutputFile file, io::OutputFile::create(path, replace));
  for (const std::string& name : names) {
    MILLRACE_ASSIGN_OR_RETURN(const Value value, load(name));
    MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::combined_bytes({{name, &value}}));
    const std::string_view piece = bytes;
    MILLRACE_RETURN_IF_ERROR(file.write({&piece, 1}));
  }
  io::forget_manifests(path);
  return file.commit(sync);
}

Status write_separate(const std::string& target, const std::vector<std::string>& names,
                      const LoadValue& load, Replace replace, bool sync) {
  MILLRACE_ASSIGN_OR_RETURN(StagedFolder staged, StagedFolder::create(target));
  const std::string& folder = staged.path();
  for (const std::string& name : names) {
    MILLRACE_ASSIGN_OR_RETURN(const Value value, load(name));
    MILLRACE_RETURN_IF_ERROR(
        io::save_separate(folder, {{name, &value}}, {.replace = replace, .sync = sync}));
  }
  return staged.commit(sync);
}

}  // namespace millrace::jobs
