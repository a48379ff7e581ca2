#include "tools/transpile/distribute.h"

#include <filesystem>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/export.h"
#include "framework/read_program.h"
#include "ops/registry.h"
#include "tools/transpile/parallel.h"
#include "transpiler/distribute/pserver_mode.h"

namespace millrace::tools {
namespace {

namespace tp = millrace::transpiler;
namespace fs = std::filesystem;

Status write_roles(Tool& tool, const std::string& folder, tp::RolePrograms roles) {
  const fs::path path = fs::path(tool.common().output) / folder;
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return IoError("cannot create folder '{}': {}", path.string(), error.message());
  MILLRACE_RETURN_IF_ERROR(
      tool.write_file((path / "__model__").string(), export_program(*roles.main)));
  return tool.write_file((path / "__startup__").string(), export_program(*roles.startup));
}

}  // namespace

StatusOr<int> distribute(Tool& tool, const TranspileOptions& options) {
  const std::unique_ptr<ops::OpRegistry> ops = ops::standard_registry();
  const ImportOptions limits{.max_bytes = tool.common().max_model_bytes};
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> main,
                            read_program(options.program, limits));
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> startup,
                            read_program(options.startup, limits));
  tp::TranspileArguments arguments = options.arguments;
  arguments.trainer_id = std::stoll(options.trainer_id);
  MILLRACE_ASSIGN_OR_RETURN(
      const std::unique_ptr<tp::PserverMode> mode,
      tp::PserverMode::transpile(*main, *startup, options.config, arguments, *ops));
  MILLRACE_ASSIGN_OR_RETURN(tp::RolePrograms trainer, mode->trainer());
  std::vector<tp::RolePrograms> servers;
  for (size_t i = 0; i < mode->job().endpoints.size(); ++i) {
    MILLRACE_ASSIGN_OR_RETURN(tp::RolePrograms server, mode->pserver(i));
    servers.push_back(std::move(server));
  }
  MILLRACE_RETURN_IF_ERROR(write_roles(tool, "trainer_" + options.trainer_id, std::move(trainer)));
  MILLRACE_RETURN_IF_ERROR(parallel_for(servers.size(), tool.common().threads, [&](size_t i) {
    return write_roles(tool, "pserver_" + std::to_string(i), std::move(servers[i]));
  }));
  return kDone;
}

}  // namespace millrace::tools
