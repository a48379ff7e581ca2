#include "tools/run/outputs.h"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "executor/inference_model.h"
#include "framework/base/errors.h"
#include "framework/base/new_file.h"
#include "io/model_folder.h"
#include "jobs/ps/save_place.h"
#include "ops/registry.h"
#include "tools/common/program_options.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

Replace replace_of(const Tool& tool) {
  return tool.common().force ? Replace::kYes : Replace::kNo;
}

// True for a folder that the run makes.
bool is_made(const RunOptions& options, const std::string& folder) {
  for (const std::string* const made :
       {&options.checkpoint_dir, &options.dump.folder, &options.save_params, &options.save_model})
    if (!made->empty() && folder.starts_with(*made)) return true;
  return false;
}

// Devices such as /dev/null are written to directly.
Status check_file(const RunOptions& options, const std::string& path, Replace replace) {
  std::error_code error;
  if (path.empty() || path == "-" || fs::is_character_file(path, error)) return Ok();
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error) && !is_made(options, folder.string()))
    return NotFound("no such folder: {}", folder.string()).in_file(path);
  return resolve_new_file(path, replace).status().in_file(path);
}

// Inside of a folder that may not exist yet.
Status check_absent(const fs::path& path, Replace replace) {
  std::error_code error;
  if (!fs::exists(path, error)) return Ok();
  return resolve_new_file(path.string(), replace).status().in_file(path.string());
}

}  // namespace

Status check_output_files(const Tool& tool, const RunOptions& options) {
  const Replace replace = replace_of(tool);
  const std::string& output = options.output.empty() ? tool.common().output : options.output;
  for (const std::string* const path :
       {&output, &options.save_persistables, &options.curve, &options.profile, &options.ps.stats,
        &options.ps.report, &options.parallel.share_vars_output})
    MILLRACE_RETURN_IF_ERROR(check_file(options, *path, replace));
  if (options.save_model.empty()) return Ok();
  return check_absent(fs::path(options.save_model) / "__model__", replace);
}

Status check_saved_values(const Tool& tool, const RunOptions& options, const Program* program) {
  const Replace replace = replace_of(tool);
  std::error_code error;
  for (const auto& [flag, path] :
       {std::pair("--save-params", &options.save_params), {"--save-model", &options.save_model}}) {
    if (program == nullptr && !path->empty())
      MILLRACE_RETURN_IF_ERROR(jobs::save_place(*path, options.allow_dir)
                                   .status()
                                   .with_note(fmt::format("for {}", flag)));
  }
  if (!options.save_params.empty() && !fs::is_directory(options.save_params, error))
    MILLRACE_RETURN_IF_ERROR(check_absent(options.save_params, replace));
  if (!options.save_params.empty() && program != nullptr) {
    for (const io::ParamSpec& spec : io::persistables_of(*program))
      MILLRACE_RETURN_IF_ERROR(check_absent(fs::path(options.save_params) / spec.name, replace));
  }
  if (options.save_model.empty()) return Ok();
  std::unique_ptr<Program> given;
  if (!options.model_program.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(given, read_program(tool, options.model_program));
    program = given.get();
  }
  if (program == nullptr) return Ok();
  return executor::make_inference_program(*program, *ops::standard_registry(), options.model_feeds,
                                          options.model_fetches)
      .status()
      .with_note("for --save-model");
}

}  // namespace millrace::tools
