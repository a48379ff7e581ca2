#include "api/job.h"

#include <filesystem>
#include <string_view>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/program.h"
#include "jobs/checkpoint/staged_folder.h"
#include "jobs/distribute/distribution.h"
#include "jobs/ps/job_folder.h"
#include "ops/registry.h"
#include "ops/verify.h"

namespace millrace::api {
namespace {

namespace fs = std::filesystem;

Status write_file(const std::string& folder, const std::string& name, std::string_view bytes) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return IoError("cannot create folder '{}': {}", folder, error.message());
  return write_file_atomically(folder + "/" + name, bytes, Replace::kYes, Flush::kNo);
}

}  // namespace

StatusOr<WrittenJob> write_job(const Program& main, const Program& startup,
                               const std::string& folder, const WriteJobOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(
      jobs::StagedFolder staged,
      jobs::StagedFolder::create(folder, options.replace ? Replace::kYes : Replace::kNo));
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  MILLRACE_RETURN_IF_ERROR(ops::check_program(*registry, main));
  MILLRACE_RETURN_IF_ERROR(ops::check_program(*registry, startup));
  jobs::DistributionOptions how;
  how.transpiler = options.transpiler;
  how.config = options.config;
  how.arguments = options.arguments;
  how.sparse_tables = options.sparse_tables;
  MILLRACE_ASSIGN_OR_RETURN(
      const jobs::Distribution made,
      jobs::Distribution::make(main.clone(), startup.clone(), *registry, how));
  for (const std::vector<jobs::JobFile>& files : made.files()) {
    for (const jobs::JobFile& file : files)
      MILLRACE_RETURN_IF_ERROR(
          write_file(file.role.empty() ? staged.path() : staged.path() + "/" + file.role, file.name,
                     file.bytes));
  }
  MILLRACE_RETURN_IF_ERROR(staged.commit(/*sync=*/true));
  WrittenJob job;
  job.trainers = static_cast<int>(made.trainers());
  job.servers = static_cast<int>(made.servers());
  job.endpoints = made.endpoints();
  job.remarks = made.remarks();
  return job;
}

RoleFiles trainer_files(const std::string& folder, int trainer) {
  const jobs::JobFolder job{folder};
  return {job.program("trainer", trainer), job.startup("trainer", trainer), job.slices()};
}

RoleFiles server_files(const std::string& folder, int server) {
  const jobs::JobFolder job{folder};
  return {job.program("pserver", server), job.startup("pserver", server), job.slices()};
}

}  // namespace millrace::api
