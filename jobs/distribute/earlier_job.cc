#include "jobs/distribute/earlier_job.h"

#include <filesystem>
#include <utility>

#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"

namespace millrace::jobs {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgramsOfRole[] = {"__model__", "__startup__"};
constexpr const char* kFleetFilesOfRole[] = {"runtime.json", "ps_desc.txt", "schedule.json"};
constexpr const char* kDownpourFilesOfRole[] = {"fleet_desc.txt", "opt_info.json"};

bool is_beyond(llvm::StringRef folder, const WrittenJob& job) {
  for (const auto& [prefix, count] : {std::pair("trainer_", job.trainers),
                                      {"pserver_", job.servers},
                                      {"heter_", job.heter_workers}}) {
    if (!folder.consume_front(prefix)) continue;
    int64_t index = 0;
    return !folder.getAsInteger(10, index) && index >= count;
  }
  return false;
}

std::vector<fs::path> files_of_earlier_job(const fs::path& output, const WrittenJob& job) {
  std::vector<fs::path> found;
  const auto add = [&](const fs::path& path) {
    std::error_code error;
    if (fs::exists(path, error)) found.push_back(path);
  };
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(output, error)) {
    if (!is_beyond(entry.path().filename().string(), job)) continue;
    for (const char* const name : kProgramsOfRole) add(entry.path() / name);
    for (const char* const name : kFleetFilesOfRole) add(entry.path() / name);
    for (const char* const name : kDownpourFilesOfRole) add(entry.path() / name);
  }
  if (!job.is_downpour) {
    for (const std::string& role : job.roles) {
      if (role.empty()) continue;
      for (const char* const name : kDownpourFilesOfRole) add(output / role / name);
    }
  }
  if (!job.is_fleet) {
    for (const std::string& role : job.roles) {
      if (role.empty()) continue;  // files of the whole job
      for (const char* const name : kFleetFilesOfRole) add(output / role / name);
    }
  }
  if (job.is_fleet) add(output / "slices.json");
  if (!job.has_tables) add(output / "tables.json");
  return found;
}

}  // namespace

Status clear_earlier_job(const std::string& output, const WrittenJob& job, Replace replace) {
  for (const fs::path& path : files_of_earlier_job(output, job)) {
    if (replace == Replace::kNo)
      return InvalidArgument("the folder holds '{}' of an earlier job, which the new job would use",
                             path.string())
          .with_hint("use options.replace to remove it, or another folder");
    std::error_code error;
    fs::remove(path, error);
    if (error) return IoError("cannot remove '{}': {}", path.string(), error.message());
  }
  return Ok();
}

}  // namespace millrace::jobs
