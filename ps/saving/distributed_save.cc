#include "ps/saving/distributed_save.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "executor/inference_model.h"
#include "framework/base/errors.h"
#include "framework/export.h"
#include "framework/op_attrs.h"
#include "framework/persistable.h"
#include "io/params.h"
#include "io/params_manifest.h"
#include "io/paths.h"
#include "io/persistables.h"
#include "ps/client/gather.h"
#include "ps/saving/remote_save.h"
#include "transpiler/distribute/io_programs.h"

namespace millrace::ps {
namespace {

using Names = std::vector<std::string>;

Status nothing_to_save(const std::string& name) {
  Location location;
  location.var = name;
  return NotFound("the var has no value to save").at(std::move(location));
}

// Names of the vars that servers hold, whole or in slices; excludes the distributed table.
std::set<std::string> names_on_servers(const transpiler::SlicesFile& slices,
                                       const std::string& vtype = {}) {
  std::set<std::string> names;
  for (const transpiler::DistributedVar& var : slices.overview.vars())
    if (vtype.empty() || var.vtype == vtype) names.insert(var.origin.name);
  names.erase(slices.properties.distributed_lookup_table);
  return names;
}

// Writes vars that the trainer holds, with values of `fresh` where it has them.
Status save_held(const SavingTrainer& trainer, const Names& names,
                 const std::map<std::string, Value>& fresh, const std::string& folder,
                 Replace replace) {
  std::vector<io::NamedValue> values;
  for (const std::string& name : names) {
    const auto found = fresh.find(name);
    const Value* const value = found != fresh.end() ? &found->second : trainer.scope->find(name);
    if (value == nullptr || !value->initialized()) return nothing_to_save(name).in_file(folder);
    values.push_back({name, value});
  }
  return io::save_separate(folder, values, {.replace = replace});
}

// Gathers the rows of typed tables under the names of the original embeddings.
Status gather_typed(const SavingTrainer& trainer, const Names* wanted,
                    std::map<std::string, Value>& values) {
  if (trainer.tables == nullptr) return Ok();
  for (const auto& [id, entry] : trainer.tables->all()) {
    const std::string& name = entry.table.param;
    if (wanted != nullptr && std::ranges::find(*wanted, name) == wanted->end()) continue;
    MILLRACE_ASSIGN_OR_RETURN(values[name], trainer.tables->gather(entry));
  }
  return Ok();
}

// Adds the names of files in the folder that recv_save ops of a program write.
void add_received(const Program& program, const std::string& folder, Names& names) {
  const std::string prefix = folder + "/";
  for (const Op& op : program.root().ops()) {
    if (op.type() != "recv_save") continue;
    const auto path = get_attr_or(op, "file_path", std::string());
    if (llvm::StringRef(path).startswith(prefix)) names.push_back(path.substr(prefix.size()));
  }
}

StatusOr<std::string> folder_of(const DistributedSaveOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(std::string path, io::make_path_below(options.root, options.folder));
  return path;
}

}  // namespace

Status add_held_vars(const SavingTrainer& trainer, std::map<std::string, Value>& gathered) {
  const transpiler::SlicesFile& slices = *trainer.slices;
  for (const Var* const var :
       transpiler::locally_saved_vars(*trainer.program, slices.overview, slices.properties)) {
    const std::string name = var->name().str();
    const Value* const value = trainer.scope->find(name);
    if (value == nullptr || !value->initialized()) continue;
    if (gathered.contains(name)) continue;
    MILLRACE_ASSIGN_OR_RETURN(gathered[name], clone(*value));
  }
  return Ok();
}

Status save_distributed_persistables(const SavingTrainer& trainer,
                                     const DistributedSaveOptions& options) {
  if (trainer.trainer != 0) return Ok();
  transpiler::ProgramProperties properties = trainer.slices->properties;
  properties.is_chief = true;
  MILLRACE_ASSIGN_OR_RETURN(const std::string folder, folder_of(options));
  MILLRACE_ASSIGN_OR_RETURN(
      const transpiler::SavePrograms plan,
      transpiler::make_save_programs(*trainer.program, trainer.slices->overview, properties,
                                     options.folder));
  // The trainer's copies may be older than the values on the servers.
  const std::set<std::string> params = names_on_servers(*trainer.slices, "Param");
  Names stale;
  std::ranges::copy_if(plan.local_vars, std::back_inserter(stale),
                       [&](const std::string& name) { return params.contains(name); });
  MILLRACE_ASSIGN_OR_RETURN(
      auto fresh, gather_vars(trainer.link->client(), *trainer.slices, stale, ignore_log));
  std::map<std::string, Value> typed;
  MILLRACE_RETURN_IF_ERROR(gather_typed(trainer, nullptr, typed));
  // Only servers know the state of the schedule; trainers that declare the var have its initial
  // value.
  MILLRACE_ASSIGN_OR_RETURN(auto schedule,
                            gather_schedule(trainer.link->client(), *trainer.slices));
  typed.merge(schedule);
  Names held = plan.local_vars;
  for (auto& [name, value] : typed) {
    if (std::ranges::find(held, name) == held.end()) held.push_back(name);
    fresh[name] = std::move(value);
  }
  MILLRACE_RETURN_IF_ERROR(save_held(trainer, held, fresh, folder, options.replace));
  RemoteSave remote(trainer, options.root);
  std::vector<const Program*> programs = options.programs;
  if (programs.empty())
    for (const auto& program : plan.remote) programs.push_back(program.get());
  Names names = std::move(held);
  for (const Program* const program : programs) {
    MILLRACE_RETURN_IF_ERROR(remote.run(*program));
    add_received(*program, options.folder, names);
  }
  return io::write_folder_manifest(folder, names, remote.saved(), /*sync=*/true);
}

Status save_fleet_inference_model(const SavingTrainer& trainer, const FleetModel& model,
                                  const DistributedSaveOptions& options) {
  if (trainer.trainer != 0) return Ok();
  RemoteSave remote(trainer, options.root);
  MILLRACE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Program> pruned,
      executor::make_inference_program(*model.origin, remote.ops(), model.feeds, model.fetches));
  MILLRACE_ASSIGN_OR_RETURN(const std::string folder, folder_of(options));
  const std::set<std::string> on_servers = names_on_servers(*trainer.slices);
  const std::string& table = trainer.slices->properties.distributed_lookup_table;
  Names fetched;
  Names held;
  std::map<std::string, Value> tables;
  for (const io::ParamSpec& spec : io::vars_where(*pruned, is_persistable)) {
    if (spec.name == table) {
      MILLRACE_ASSIGN_OR_RETURN(tables[table],
                                gather_table(trainer.link->client(), *trainer.slices));
      held.push_back(spec.name);
    } else if (on_servers.contains(spec.name)) {
      fetched.push_back(spec.name);
    } else {
      held.push_back(spec.name);
    }
  }
  MILLRACE_RETURN_IF_ERROR(gather_typed(trainer, &held, tables));
  MILLRACE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Program> fetch,
      transpiler::make_fetch_program(trainer.slices->overview, fetched, options.folder));
  if (fetch != nullptr) {
    for (Op& op : fetch->root().ops()) op.set_bool("overwrite", options.replace == Replace::kYes);
    MILLRACE_RETURN_IF_ERROR(remote.run(*fetch));
  }
  MILLRACE_RETURN_IF_ERROR(save_held(trainer, held, tables, folder, options.replace));
  const std::string model_path = folder + "/__model__";
  MILLRACE_RETURN_IF_ERROR(
      write_file_atomically(model_path, export_program(*pruned), options.replace));
  Names files = fetched;
  files.insert(files.end(), held.begin(), held.end());
  files.emplace_back("__model__");
  return io::write_folder_manifest(folder, files, {}, /*sync=*/true);
}

}  // namespace millrace::ps
