#include "fleet/saving/worker_saver.h"

#include <algorithm>
#include <set>
#include <utility>

#include "executor/feed_values.h"
#include "executor/inference_model.h"
#include "framework/base/errors.h"
#include "framework/persistable.h"
#include "io/params.h"
#include "io/params_manifest.h"
#include "io/paths.h"
#include "io/persistables.h"
#include "ops/registry.h"
#include "ps/client/saved_parts.h"

namespace millrace::fleet {
namespace {

using Names = std::vector<std::string>;

// A table and its name in manifests.
struct NamedTable {
  int id = 0;
  std::string name;
};

std::vector<NamedTable> tables_of(FleetWorker& worker) {
  std::vector<NamedTable> tables;
  if (worker.tables() != nullptr) {
    for (const auto& [id, entry] : worker.tables()->all())
      tables.push_back({id, entry.table.param});
  }
  for (const auto& [id, names] : worker.dense_tables()) tables.push_back({id, "MergedDense"});
  return tables;
}

Names embeddings_of(FleetWorker& worker) {
  Names names;
  if (worker.tables() == nullptr) return names;
  for (const auto& [id, entry] : worker.tables()->all()) names.push_back(entry.table.param);
  return names;
}

StatusOr<const Value*> value_of(FleetWorker& worker, const std::string& name) {
  const Value* const value = worker.scope().find(name);
  if (value != nullptr && value->initialized()) return value;
  Location location;
  location.var = name;
  return NotFound("the var has no value to save").at(std::move(location));
}

// Differences of a geo worker are relative to the values that it last received, which must not be
// changed otherwise.
Status check_geo(FleetWorker& worker, const char* what) {
  if (worker.mode() != ps::CommMode::kGeo || !worker.communicator().is_running()) return Ok();
  return Unimplemented("{} a geo job while it trains is not implemented", what)
      .with_hint("wait_for_all() ends training; init_server_from() starts from saved tables");
}

// Makes every server save its rows of every table on its own disk.
StatusOr<ps::SavedParts> save_tables(FleetWorker& worker, const FleetSaveTarget& to) {
  ps::SavedParts parts;
  for (const NamedTable& table : tables_of(worker)) {
    MILLRACE_ASSIGN_OR_RETURN(
        std::vector<ps::protocol::SavedFile> written,
        worker.table_client().save(table.id, to.folder, to.mode, to.replace == Replace::kYes));
    for (size_t server = 0; server < written.size(); ++server)
      parts.push_back(
          ps::saved_part(std::move(written[server]), table.name, worker.servers()[server]));
  }
  return parts;
}

Status load_vars(FleetWorker& worker, const std::string& folder,
                 const std::vector<io::ParamSpec>& vars) {
  if (vars.empty()) return Ok();
  MILLRACE_RETURN_IF_ERROR(io::check_folder(folder, io::names_of(vars), io::CheckFiles::kBytes));
  MILLRACE_ASSIGN_OR_RETURN(io::ParamValues values, io::load_separate(folder, vars));
  for (auto& [name, value] : values) worker.scope().local(name) = std::move(value);
  return Ok();
}

Status load_tables_and_vars(FleetWorker& worker, const FleetSaveTarget& from) {
  MILLRACE_RETURN_IF_ERROR(check_geo(worker, "loading"));
  MILLRACE_ASSIGN_OR_RETURN(const std::string folder, io::path_below(from.root, from.folder));
  ps::TableClient& client = worker.table_client();
  MILLRACE_RETURN_IF_ERROR(client.barrier(ps::CommBarrier::kLoad));
  Status loaded;
  if (worker.index() == 0) {
    for (const NamedTable& table : tables_of(worker)) {
      loaded = client.load(table.id, from.folder);
      if (!loaded.ok()) break;
    }
  }
  // do not return before the barrier: the others would wait for this worker
  const Status met = client.barrier(ps::CommBarrier::kLoad);
  MILLRACE_RETURN_IF_ERROR(std::move(loaded));
  MILLRACE_RETURN_IF_ERROR(Status(met));
  std::set<std::string> on_servers;
  for (const auto& [id, names] : worker.dense_tables())
    on_servers.insert(names.begin(), names.end());
  std::vector<io::ParamSpec> rest = saved_vars(worker);
  std::erase_if(rest, [&](const io::ParamSpec& each) { return on_servers.contains(each.name); });
  const bool shares = worker.group() != nullptr;
  if (!shares || worker.index() == 0) MILLRACE_RETURN_IF_ERROR(load_vars(worker, folder, rest));
  if (shares) MILLRACE_RETURN_IF_ERROR(worker.share_values());
  return worker.communicator().recv(worker.scope());
}

}  // namespace

std::vector<io::ParamSpec> saved_vars(FleetWorker& worker) {
  const std::vector<const Var*> vars = remaining_vars(worker.program(), embeddings_of(worker));
  std::set<std::string> names;
  for (const Var* const var : vars) {
    if (!worker.rate_vars().contains(var->name().str())) names.insert(var->name().str());
  }
  return io::vars_where(worker.program(),
                        [&](const Var& var) { return names.contains(var.name().str()); });
}

Status save_worker_persistables(FleetWorker& worker, const FleetSaveTarget& to) {
  MILLRACE_RETURN_IF_ERROR(check_geo(worker, "saving"));
  if (worker.index() != 0) return Ok();
  MILLRACE_RETURN_IF_ERROR(io::check_has_files(worker.scope(), worker.program(), is_persistable));
  MILLRACE_RETURN_IF_ERROR(worker.communicator().recv(worker.scope()));
  MILLRACE_ASSIGN_OR_RETURN(const std::string folder, io::make_path_below(to.root, to.folder));
  MILLRACE_ASSIGN_OR_RETURN(ps::SavedParts parts, save_tables(worker, to));
  std::vector<io::NamedValue> values;
  const std::vector<io::ParamSpec> specs = saved_vars(worker);
  for (const io::ParamSpec& spec : specs) {
    MILLRACE_ASSIGN_OR_RETURN(const Value* const value, value_of(worker, spec.name));
    values.push_back({spec.name, value});
  }
  MILLRACE_RETURN_IF_ERROR(io::save_separate(folder, values, {.replace = to.replace}));
  return io::write_folder_manifest(folder, io::names_of(specs), std::move(parts), /*sync=*/true);
}

Status save_worker_model(FleetWorker& worker, const FleetSaveTarget& to, const Program& origin,
                         const Names& feeds, const Names& fetches) {
  MILLRACE_RETURN_IF_ERROR(check_geo(worker, "saving"));
  if (worker.index() != 0) return Ok();
  const auto registry = ops::standard_registry();
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> pruned,
                            executor::make_inference_program(origin, *registry, feeds, fetches));
  MILLRACE_ASSIGN_OR_RETURN(const std::string folder, io::make_path_below(to.root, to.folder));
  MILLRACE_RETURN_IF_ERROR(worker.communicator().recv(worker.scope()));
  Scope saved;
  std::set<std::string> gathered;
  MILLRACE_RETURN_IF_ERROR(io::check_has_files(worker.scope(), *pruned, is_persistable));
  const std::vector<io::ParamSpec> specs = io::vars_where(*pruned, is_persistable);
  const auto is_read = [&](const std::string& name) {
    return std::ranges::any_of(specs, [&](const io::ParamSpec& spec) { return spec.name == name; });
  };
  if (worker.tables() != nullptr) {
    for (const auto& [id, entry] : worker.tables()->all()) {
      if (!is_read(entry.table.param)) continue;
      MILLRACE_ASSIGN_OR_RETURN(saved.local(entry.table.param), worker.tables()->gather(entry));
      gathered.insert(entry.table.param);
    }
  }
  for (const io::ParamSpec& spec : specs) {
    if (gathered.contains(spec.name)) continue;
    MILLRACE_ASSIGN_OR_RETURN(const Value* const value, value_of(worker, spec.name));
    MILLRACE_RETURN_IF_ERROR(executor::copy_value(*value, saved.local(spec.name)));
  }
  executor::SaveModelOptions options;
  options.replace = to.replace;
  return executor::save_inference_model(folder, origin, *registry, saved, feeds, fetches, options);
}

Status load_worker_vars(FleetWorker& worker, const std::string& folder) {
  return load_vars(worker, folder, saved_vars(worker));
}

Status load_worker_persistables(FleetWorker& worker, const FleetSaveTarget& from) {
  return worker.abandon(load_tables_and_vars(worker, from));
}

}  // namespace millrace::fleet
