#include "api/job.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/export.h"
#include "framework/program.h"
#include "jobs/checkpoint/staged_folder.h"
#include "jobs/config/typed_tables.h"
#include "jobs/ps/job_folder.h"
#include "ops/registry.h"
#include "ops/verify.h"
#include "transpiler/distribute/slices_json.h"
#include "transpiler/distribute/transpilation.h"

namespace millrace::api {
namespace {

namespace fs = std::filesystem;
namespace tp = millrace::transpiler;

Status write_file(const std::string& folder, const std::string& name, std::string_view bytes) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return IoError("cannot create folder '{}': {}", folder, error.message());
  return write_file_atomically(folder + "/" + name, bytes, Replace::kYes, Flush::kNo);
}

Status write_role(const std::string& folder, const tp::RolePrograms& programs) {
  MILLRACE_RETURN_IF_ERROR(write_file(folder, "__model__", export_program(*programs.main)));
  return write_file(folder, "__startup__", export_program(*programs.startup));
}

// A program that is being distributed, and what describes all roles.
class JobWriter {
 public:
  JobWriter(const WriteJobOptions& options, std::string folder)
      : options_(options), folder_(std::move(folder)) {}

  Status take(const Program& main, const Program& startup) {
    MILLRACE_RETURN_IF_ERROR(ops::check_program(*registry_, main));
    MILLRACE_RETURN_IF_ERROR(ops::check_program(*registry_, startup));
    main_ = main.clone();
    startup_ = startup.clone();
    if (options_.sparse_tables.empty()) return Ok();
    if (options_.transpiler != "distribute" || options_.config.mode != "pserver")
      return Unimplemented("'sparse_tables' with transpiler '{}' and mode '{}'",
                           options_.transpiler, options_.config.mode);
    llvm::SmallVector<llvm::StringRef, 8> servers;
    llvm::StringRef(options_.arguments.pservers).split(servers, ',', -1, false);
    std::vector<std::string> endpoints;
    for (const llvm::StringRef server : servers) endpoints.push_back(server.str());
    MILLRACE_ASSIGN_OR_RETURN(
        tables_, jobs::make_typed_tables(options_.sparse_tables, endpoints, *main_, *startup_));
    return Ok();
  }

  StatusOr<WrittenJob> write() {
    WrittenJob job;
    job.trainers = static_cast<int>(
        std::max<int64_t>(1, tp::Transpilation::count_trainers(options_.transpiler, options_.config,
                                                               options_.arguments)));
    for (int i = 0; i < job.trainers; ++i) {
      tp::TranspileArguments arguments = options_.arguments;
      arguments.trainer_id = i;
      MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<tp::Transpilation> plan,
                                tp::Transpilation::create(options_.transpiler, *main_, *startup_,
                                                          options_.config, arguments, *registry_));
      MILLRACE_RETURN_IF_ERROR(write_trainer(*plan, i));
      if (i == 0) MILLRACE_RETURN_IF_ERROR(write_servers(*plan, job));
    }
    return job;
  }

 private:
  Status write_trainer(const tp::Transpilation& plan, int trainer) {
    const std::string folder = fmt::format("{}/trainer_{}", folder_, trainer);
    MILLRACE_ASSIGN_OR_RETURN(const tp::RolePrograms programs, plan.trainer());
    MILLRACE_RETURN_IF_ERROR(write_role(folder, programs));
    for (const auto& [name, program] : plan.trainer_extras())
      MILLRACE_RETURN_IF_ERROR(write_file(folder, name, export_program(*program)));
    return Ok();
  }

  Status write_servers(const tp::Transpilation& plan, WrittenJob& job) {
    job.servers = static_cast<int>(plan.server_count());
    if (job.servers > 0) job.endpoints = plan.properties().endpoints;
    job.remarks = plan.remarks();
    for (size_t i = 0; i < plan.server_count(); ++i) {
      MILLRACE_ASSIGN_OR_RETURN(const tp::RolePrograms programs, plan.pserver(i));
      MILLRACE_RETURN_IF_ERROR(write_role(fmt::format("{}/pserver_{}", folder_, i), programs));
    }
    if (!tables_.empty())
      MILLRACE_RETURN_IF_ERROR(
          write_file(folder_, "tables.json", jobs::typed_tables_json(tables_)));
    return write_file(folder_, "slices.json", tp::slices_json(plan.properties(), plan.overview()));
  }

  const WriteJobOptions& options_;
  std::string folder_;
  std::unique_ptr<ops::OpRegistry> registry_ = ops::standard_registry();
  std::unique_ptr<Program> main_;
  std::unique_ptr<Program> startup_;
  std::vector<ps::TypedTable> tables_;
};

}  // namespace

StatusOr<WrittenJob> write_job(const Program& main, const Program& startup,
                               const std::string& folder, const WriteJobOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(
      jobs::StagedFolder staged,
      jobs::StagedFolder::create(folder, options.replace ? Replace::kYes : Replace::kNo));
  JobWriter writer(options, staged.path());
  MILLRACE_RETURN_IF_ERROR(writer.take(main, startup));
  MILLRACE_ASSIGN_OR_RETURN(WrittenJob job, writer.write());
  MILLRACE_RETURN_IF_ERROR(staged.commit(/*sync=*/true));
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
