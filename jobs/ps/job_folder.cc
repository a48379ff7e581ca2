#include "jobs/ps/job_folder.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "framework/base/errors.h"

namespace millrace::jobs {

std::string JobFolder::program(const char* role, int index) const {
  return fmt::format("{}/{}_{}/__model__", path, role, index);
}

std::string JobFolder::startup(const char* role, int index) const {
  return fmt::format("{}/{}_{}/__startup__", path, role, index);
}

StatusOr<JobFolder> open_job_folder(const std::string& path) {
  JobFolder folder{path, 0, 0, 0};
  for (const auto& [role, count] : {std::pair("trainer", &folder.trainers),
                                    {"pserver", &folder.servers},
                                    {"heter", &folder.heter_workers}}) {
    std::error_code unknown;
    while (std::filesystem::exists(folder.program(role, *count), unknown)) ++*count;
    if (unknown)
      return IoError("cannot look for '{}': {}", folder.program(role, *count), unknown.message());
  }
  if (folder.trainers > 0 && folder.servers > 0) return folder;
  return NotFound("'{}' has {} trainers and {} servers, expected trainer_0 and pserver_0 at least",
                  path, folder.trainers, folder.servers)
      .with_hint("create such a folder with transpile-program --trainer-id all");
}

}  // namespace millrace::jobs
