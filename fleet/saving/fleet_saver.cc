#include "fleet/saving/fleet_saver.h"

#include <utility>

#include "executor/inference_model.h"
#include "framework/base/errors.h"
#include "io/params.h"
#include "io/params_manifest.h"
#include "io/paths.h"
#include "io/persistables.h"
#include "ps/saving/remote_save.h"

namespace millrace::fleet {

Status FleetSaver::check(const char* function, const SavingExecutor& executor,
                         const SavedProgram& program) const {
  if (std::holds_alternative<const executor::ParallelExecutor*>(executor))
    return InvalidArgument("{}: expected an Executor, found a ParallelExecutor", function);
  if (std::get<const executor::Executor*>(executor) == nullptr)
    return InvalidArgument("{}: expected an Executor, found none", function);
  if (job_.form == FleetClass::kOldest) return Ok();
  if (std::holds_alternative<const executor::PreparedProgram*>(program))
    return InvalidArgument("{}: expected a Program, found a CompiledProgram", function);
  return Ok();
}

const Program& FleetSaver::program_or_own(const SavedProgram& program) const {
  if (const auto* const named = std::get_if<const Program*>(&program)) return **named;
  if (const auto* const compiled = std::get_if<const executor::PreparedProgram*>(&program))
    return (*compiled)->given();
  return job_.form == FleetClass::kRuntime ? *job_.origin : *job_.trainer.program;
}

Status FleetSaver::save_persistables(const SavingExecutor& executor, const FleetSaveTarget& target,
                                     const SavedProgram& program) const {
  MILLRACE_RETURN_IF_ERROR(check("fleet.save_persistables()", executor, program));
  const Program& saved = program_or_own(program);
  switch (job_.form) {
    case FleetClass::kOldest: {
      MILLRACE_ASSIGN_OR_RETURN(const std::string folder,
                                io::make_path_below(target.root, target.folder));
      io::SaveVarsOptions options;
      options.save.replace = target.replace;
      return io::save_persistables(*job_.trainer.scope, saved, folder, options).status();
    }
    case FleetClass::kTranspiler: {
      if (!job_.trainer.slices->properties.is_distributed || &saved != job_.trainer.program) {
        return InvalidArgument(
            "fleet.save_persistables(): expected a distributed program, found a local one");
      }
      return ps::save_distributed_persistables(job_.trainer,
                                               {target.root, target.folder, target.replace, {}});
    }
    case FleetClass::kContexts:
    case FleetClass::kRuntime:
      return save_by_contexts(target, saved);
  }
  return Internal("unknown class of fleet");
}

Status FleetSaver::save_by_contexts(const FleetSaveTarget& target, const Program& program) const {
  if (job_.receive) MILLRACE_RETURN_IF_ERROR(job_.receive());
  FleetSaveRequest request;
  request.origin = job_.origin;
  request.contexts = job_.contexts;
  request.directory = target.folder;
  request.worker = job_.trainer.trainer;
  request.servers = job_.servers;
  request.mode = target.mode;
  request.form = job_.form == FleetClass::kRuntime ? FleetForm::kRuntime : FleetForm::kTranspiler;
  MILLRACE_ASSIGN_OR_RETURN(FleetSavePlan plan, make_fleet_save_programs(request));
  MILLRACE_ASSIGN_OR_RETURN(const std::string folder,
                            io::make_path_below(target.root, target.folder));
  ps::RemoteSave remote(job_.trainer, target.root);
  for (Program* const each : {plan.dense.get(), plan.sparse.get(), plan.distributed.get()}) {
    if (each == nullptr) continue;
    for (Op& op : each->root().ops())
      if (op.type() == "recv_save") op.set_bool("overwrite", target.replace == Replace::kYes);
    MILLRACE_RETURN_IF_ERROR(remote.run(*each));
  }
  std::vector<std::string> saved = plan.received;
  saved.insert(saved.end(), plan.tables.begin(), plan.tables.end());
  std::vector<io::NamedValue> rest;
  std::vector<std::string> files = plan.received;
  for (const Var* const var : remaining_vars(program, saved)) {
    const std::string name = var->name().str();
    const Value* const value = job_.trainer.scope->find(name);
    if (value == nullptr || !value->initialized()) {
      Location location;
      location.file = folder;
      location.var = name;
      return NotFound("the var has no value to save").at(std::move(location));
    }
    rest.push_back({name, value});
    files.push_back(name);
  }
  MILLRACE_RETURN_IF_ERROR(io::save_separate(folder, rest, {.replace = target.replace}));
  return io::write_folder_manifest(folder, files, remote.saved(), /*sync=*/true);
}

Status FleetSaver::save_inference_model(const SavingExecutor& executor,
                                        const FleetSaveTarget& target,
                                        const std::vector<std::string>& feeds,
                                        const std::vector<std::string>& fetches,
                                        const SavedProgram& program) const {
  MILLRACE_RETURN_IF_ERROR(check("fleet.save_inference_model()", executor, program));
  const bool named = !std::holds_alternative<std::monostate>(program);
  if (!named && job_.form != FleetClass::kOldest) {
    return ps::save_fleet_inference_model(job_.trainer, {job_.origin, feeds, fetches},
                                          {target.root, target.folder, target.replace, {}});
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string folder,
                            io::make_path_below(target.root, target.folder));
  executor::SaveModelOptions options;
  options.replace = target.replace;
  const ps::RemoteSave ops(job_.trainer, target.root);
  return executor::save_inference_model(folder, program_or_own(program), ops.ops(),
                                        *job_.trainer.scope, feeds, fetches, options);
}

}  // namespace millrace::fleet
