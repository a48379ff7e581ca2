#include "jobs/run/save_results.h"

#include <memory>

#include "executor/inference_model.h"
#include "framework/read_program.h"
#include "io/model_folder.h"

namespace millrace::jobs {
namespace {

Status save_model(const SaveOptions& options, const Session& session,
                  const executor::Runtime& runtime) {
  std::unique_ptr<Program> named;
  if (!options.model_program.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(named, read_program(options.model_program, options.reading));
  }
  executor::SaveModelOptions how;
  how.params_filename = options.params_filename;
  how.replace = options.replace;
  return executor::save_inference_model(
      options.model, named == nullptr ? session.program() : *named, *runtime.ops, *session.scope,
      options.model_feeds, options.model_fetches, how);
}

}  // namespace

Status save_results(const SaveOptions& options, const Session& session,
                    const executor::Runtime& runtime) {
  if (!options.params.empty())
    MILLRACE_RETURN_IF_ERROR(io::save_parameters(options.params, session.program(), *session.scope,
                                                 {.replace = options.replace}));
  return options.model.empty() ? Ok() : save_model(options, session, runtime);
}

StatusOr<std::string> persistables_npz(const Session& session, bool all_devices) {
  MILLRACE_ASSIGN_OR_RETURN(const executor::NamedValues saved,
                            all_devices ? persistables_of_devices(session) : persistables(session));
  return io::npz_bytes(saved);
}

}  // namespace millrace::jobs
