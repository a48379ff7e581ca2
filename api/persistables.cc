#include "api/persistables.h"

#include <set>
#include <utility>

#include "api/internals.h"
#include "executor/inference_model.h"
#include "framework/base/errors.h"
#include "framework/program.h"
#include "io/persistables.h"
#include "ops/registry.h"

namespace millrace::api {
namespace {

io::SaveVarsOptions settings_of(const SaveVarsOptions& options) {
  io::SaveVarsOptions settings;
  settings.filename = options.filename;
  settings.save.replace = options.replace ? Replace::kYes : Replace::kNo;
  settings.save.sync = options.sync;
  settings.manifest = options.manifest;
  return settings;
}

// A predicate for the names. Errors: kNotFound for one that no file can hold.
StatusOr<io::VarPredicate> named(const Program& program, const std::vector<std::string>& names) {
  const std::set<std::string> wanted(names.begin(), names.end());
  const auto matches = [wanted](const Var& var) { return wanted.contains(var.name().str()); };
  std::set<std::string> found;
  for (const io::ParamSpec& spec : io::vars_where(program, matches)) found.insert(spec.name);
  for (const std::string& name : names) {
    if (!found.contains(name))
      return NotFound("the program has no var '{}' that a file can hold", name);
  }
  return io::VarPredicate(matches);
}

StatusOr<int64_t> counted(StatusOr<size_t> saved) {
  if (!saved.ok()) return std::move(saved).status();
  return static_cast<int64_t>(*saved);
}

}  // namespace

StatusOr<int64_t> save_persistables(const Program& program, const Scope& scope,
                                    const std::string& folder, const SaveVarsOptions& options) {
  return counted(
      io::save_persistables(Internals::vars(scope), program, folder, settings_of(options)));
}

StatusOr<int64_t> save_vars(const Program& program, const Scope& scope,
                            const std::vector<std::string>& names, const std::string& folder,
                            const SaveVarsOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const io::VarPredicate wanted, named(program, names));
  return counted(
      io::save_vars(Internals::vars(scope), program, folder, wanted, settings_of(options)));
}

Status load_persistables(const Program& program, const Scope& scope, const std::string& folder,
                         const std::string& filename) {
  return io::load_persistables(Internals::vars(scope), program, folder, filename);
}

Status load_vars(const Program& program, const Scope& scope, const std::vector<std::string>& names,
                 const std::string& folder, const std::string& filename) {
  MILLRACE_ASSIGN_OR_RETURN(const io::VarPredicate wanted, named(program, names));
  return io::load_vars(Internals::vars(scope), program, folder, wanted, filename);
}

StatusOr<std::string> persistables_to_memory(const Program& program, const Scope& scope) {
  return io::persistables_to_memory(Internals::vars(scope), program);
}

Status persistables_from_memory(const Program& program, const Scope& scope,
                                std::string_view bytes) {
  return io::persistables_from_memory(Internals::vars(scope), program, bytes);
}

Status save_inference_model(const Program& program, const Scope& scope, const std::string& folder,
                            const std::vector<std::string>& feeds,
                            const std::vector<std::string>& fetches,
                            const SaveModelOptions& options) {
  executor::SaveModelOptions settings;
  settings.model_filename = options.model_filename;
  settings.params_filename = options.params_filename;
  settings.program_only = options.program_only;
  settings.replace = options.replace ? Replace::kYes : Replace::kNo;
  return executor::save_inference_model(folder, program, *ops::standard_registry(),
                                        Internals::vars(scope), feeds, fetches, settings);
}

StatusOr<InferenceModel> load_inference_model(const std::string& folder, const Scope& scope,
                                              const std::string& model_filename,
                                              const std::string& params_filename) {
  MILLRACE_ASSIGN_OR_RETURN(executor::InferenceModel model,
                            executor::load_inference_model(folder, Internals::vars(scope),
                                                           model_filename, params_filename));
  return InferenceModel{std::move(model.program), std::move(model.feeds), std::move(model.fetches)};
}

}  // namespace millrace::api
