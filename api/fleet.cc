#include "api/fleet.h"

#include <utility>
#include <variant>

#include "api/internals.h"
#include "executor/array_values.h"
#include "fleet/fleet.h"
#include "fleet/roles/mpi_role.h"
#include "framework/base/errors.h"
#include "framework/program.h"
#include "jobs/ps/transpiled_fleet.h"
#include "ops/registry.h"

namespace millrace::api {
namespace {

fleet::ConfigDict dict_of(const FleetConfigs& configs) {
  return {configs.begin(), configs.end()};
}

StatusOr<fleet::DistributedStrategy> strategy_of(const FleetStrategy& from) {
  fleet::DistributedStrategy strategy;
  strategy.set_a_sync(from.a_sync);
  MILLRACE_RETURN_IF_ERROR(strategy.set_a_sync_configs(dict_of(from.a_sync_configs)));
  MILLRACE_RETURN_IF_ERROR(strategy.set_trainer_desc_configs(dict_of(from.trainer_desc_configs)));
  MILLRACE_RETURN_IF_ERROR(strategy.set_fs_client_param(dict_of(from.fs_client_param)));
  for (const auto& [table, configs] : from.tables)
    MILLRACE_RETURN_IF_ERROR(strategy.set_table_configs(table, dict_of(configs)));
  strategy.set_use_cvm(from.use_cvm);
  strategy.set_adam_d2sum(from.adam_d2sum);
  strategy.set_all_optimizers(from.all_optimizers);
  return strategy;
}

StatusOr<fleet::DownpourOptions> options_of(const DownpourStrategy& from) {
  if (from.window < 1) return InvalidArgument("window: expected at least 1, found {}", from.window);
  fleet::DownpourOptions options;
  options.learning_rate = from.learning_rate;
  options.window = from.window;
  options.data_norm_names = from.data_norm_names;
  options.early = from.early;
  options.use_cvm = from.use_cvm;
  options.sparse_configs = dict_of(from.sparse_configs);
  options.dense_configs = dict_of(from.dense_configs);
  options.data_norm_configs = dict_of(from.datanorm_configs);
  options.fleet_desc = from.fleet_desc;
  options.program_config_messages = from.program_config_messages;
  return options;
}

// Errors: kInvalidArgument for another value; kUnimplemented for a rate that the caller of each
// worker would set.
StatusOr<bool> is_hybrid(const MinimizeOptions& optimizer, const FleetStrategy& strategy) {
  if (strategy.dense_gradients == "servers") return false;
  if (strategy.dense_gradients != "all_reduce")
    return InvalidArgument("dense_gradients: expected servers or all_reduce, found '{}'",
                           strategy.dense_gradients);
  if (std::holds_alternative<SteppedRate>(optimizer.learning_rate))
    return Unimplemented(
        "a learning rate that the caller sets in each step with dense_gradients all_reduce: "
        "workers could differ");
  return true;
}

// Errors: kInvalidArgument for an option that only workers of a hybrid job have.
// \param loads  workers load a folder, as those of the first fleet
Status check_no_group(const FleetWorkerOptions& options, bool loads) {
  const char* const given =
      !loads && !options.folder.empty() ? "folder" : given_meeting_option(options);
  if (given == nullptr) return Ok();
  return InvalidArgument("options.{}: only for workers of a job with dense_gradients all_reduce",
                         given);
}

fleet::FleetSaveTarget target_of(const FleetFolder& folder) {
  fleet::FleetSaveTarget target;
  target.root = folder.root;
  target.folder = folder.folder;
  target.replace = folder.replace ? Replace::kYes : Replace::kNo;
  target.mode = folder.mode;
  return target;
}

StatusOr<jobs::TranspiledSaveTarget> transpiled_target_of(const FleetFolder& folder) {
  if (folder.mode != 0)
    return InvalidArgument("mode {}: with a TranspilerStrategy all rows are saved, expected 0",
                           folder.mode);
  return jobs::TranspiledSaveTarget{folder.root, folder.folder,
                                    folder.replace ? Replace::kYes : Replace::kNo};
}

// A copy, which lives longer than the process's own.
std::shared_ptr<const Program> copy_of(const Program* program) {
  return program == nullptr ? nullptr : std::shared_ptr<const Program>(program->clone());
}

}  // namespace

struct Fleet::Parts {
  Connection connection;
  fleet::Fleet fleet;
  bool dumps = false;             ///< the strategy names vars to dump
  bool is_hybrid = false;         ///< workers average dense gradients by all-reduce
  bool from_environment = false;  ///< variables of the environment set the communicator
  /// The job, if servers run optimizer blocks; `fleet` then has the role alone. Null: they do not.
  std::unique_ptr<jobs::TranspiledFleet> transpiled = nullptr;

  [[nodiscard]] Status init_transpiled(const FleetWorkerOptions& options,
                                       const fleet::WaitOptions* wait) const;
  [[nodiscard]] Status init_hybrid(const FleetRole& role, const FleetWorkerOptions& options,
                                   const fleet::WaitOptions* wait);
  [[nodiscard]] ps::ClientOptions client(const FleetWorkerOptions& options) const {
    return Internals::client(connection, 0, options.deadline, options.heartbeat);
  }
  /// One epoch of a worker. Workers of hybrid jobs make the same number of steps.
  [[nodiscard]] StatusOr<EpochResult> run_epoch(Dataset& dataset, const EpochOptions& options);
  [[nodiscard]] Status step(const executor::NamedValues& feeds,
                            const std::vector<std::string>& fetches, std::vector<Value>& results) {
    return transpiled != nullptr ? transpiled->step(feeds, fetches, results)
                                 : fleet.step(feeds, fetches, results);
  }
};

Status Fleet::Parts::init_transpiled(const FleetWorkerOptions& options,
                                     const fleet::WaitOptions* wait) const {
  jobs::Trainer::Settings settings;
  if (from_environment)
    MILLRACE_RETURN_IF_ERROR(
        jobs::read_communicator_settings(fleet::process_variables(), settings));
  settings.client = client(options);
  return transpiled->init_worker(Internals::state(connection).transport, wait, std::move(settings),
                                 options.folder);
}

Status Fleet::Parts::init_hybrid(const FleetRole& role, const FleetWorkerOptions& options,
                                 const fleet::WaitOptions* wait) {
  if (role.is_server || fleet.job() == nullptr)  // the error names the call that is missing
    return fleet.init_worker(Internals::state(connection).transport, wait);
  fleet::Fleet::GroupStart group;
  group.folder = options.folder;
  MILLRACE_ASSIGN_OR_RETURN(group.rings, rings_of_workers(connection, role, options));
  return fleet.init_worker(Internals::state(connection).transport, wait, client(options), &group);
}

StatusOr<EpochResult> Fleet::Parts::run_epoch(Dataset& dataset, const EpochOptions& options) {
  const auto one = [this](const executor::NamedValues& feeds,
                          const std::vector<std::string>& fetches,
                          std::vector<Value>& results) { return step(feeds, fetches, results); };
  fleet::FleetWorker* const worker = fleet.worker();
  return run_over(dataset, options, worker == nullptr ? nullptr : worker->group(), one);
}

Fleet::Fleet(Connection connection)
    : parts_(std::unique_ptr<Parts>(new Parts{std::move(connection), {}})) {}
Fleet::Fleet(Fleet&&) noexcept = default;
Fleet& Fleet::operator=(Fleet&&) noexcept = default;
Fleet::~Fleet() = default;

Status Fleet::init(const FleetRole& role) {
  fleet::UserDefinedRole arguments;
  arguments.current_id = role.id;
  arguments.role = role.is_server ? fleet::Role::kServer : fleet::Role::kWorker;
  arguments.worker_num = role.worker_endpoints.empty() ? role.worker_num : 0;
  arguments.server_endpoints = role.server_endpoints;
  arguments.worker_endpoints = role.worker_endpoints;
  MILLRACE_ASSIGN_OR_RETURN(fleet::RoleMaker maker, fleet::user_defined_role(arguments));
  return parts_->fleet.init(std::move(maker));
}

Status Fleet::init_from_environment() {
  parts_->from_environment = true;
  return parts_->fleet.init_from_environment(fleet::process_environment());
}

Status Fleet::init_from_mpi(const std::string& host) {
  MILLRACE_ASSIGN_OR_RETURN(fleet::RoleMaker role,
                            fleet::mpi_symmetric_role(fleet::process_environment(), host));
  parts_->from_environment = true;
  return parts_->fleet.init(std::move(role));
}

std::vector<std::string> Fleet::remarks() const {
  std::vector<std::string> all = parts_->fleet.remarks();
  if (parts_->transpiled != nullptr)
    all.insert(all.end(), parts_->transpiled->remarks().begin(),
               parts_->transpiled->remarks().end());
  return all;
}

StatusOr<FleetRole> Fleet::role() const {
  FleetRole role;
  MILLRACE_ASSIGN_OR_RETURN(role.is_server, parts_->fleet.is_server());
  MILLRACE_ASSIGN_OR_RETURN(
      role.id, role.is_server ? parts_->fleet.server_index() : parts_->fleet.worker_index());
  MILLRACE_ASSIGN_OR_RETURN(role.worker_num, parts_->fleet.worker_num());
  MILLRACE_ASSIGN_OR_RETURN(role.server_endpoints, parts_->fleet.server_endpoints());
  MILLRACE_ASSIGN_OR_RETURN(role.worker_endpoints, parts_->fleet.worker_endpoints());
  return role;
}

StatusOr<std::vector<std::string>> Fleet::split_files(const std::vector<std::string>& files) const {
  return parts_->fleet.split_files(files);
}

Status Fleet::distributed_optimizer(const MinimizeOptions& optimizer,
                                    const FleetStrategy& strategy) {
  MILLRACE_ASSIGN_OR_RETURN(fleet::DistributedStrategy settings, strategy_of(strategy));
  const auto& trainer = settings.trainer_desc_configs();
  parts_->dumps = !trainer.dump_fields.empty() || !trainer.dump_param.empty();
  MILLRACE_ASSIGN_OR_RETURN(parts_->is_hybrid, is_hybrid(optimizer, strategy));
  parts_->fleet.all_reduce_dense(parts_->is_hybrid);
  parts_->transpiled = nullptr;
  return parts_->fleet.distributed_optimizer(optimizer, std::move(settings));
}

Status Fleet::distributed_optimizer(const MinimizeOptions& optimizer,
                                    const TranspilerStrategy& strategy) {
  MILLRACE_ASSIGN_OR_RETURN(fleet::RoleMaker role, parts_->fleet.role());
  const std::string scratch = fleet::process_environment()("TMPDIR").value_or("/tmp");
  MILLRACE_ASSIGN_OR_RETURN(
      parts_->transpiled,
      jobs::TranspiledFleet::create(
          std::move(role), optimizer,
          {strategy.config, strategy.communicator, strategy.sparse_tables}, scratch));
  return Ok();
}

Status Fleet::distributed_optimizer(const DownpourStrategy& strategy) {
  MILLRACE_ASSIGN_OR_RETURN(fleet::DownpourOptions options, options_of(strategy));
  parts_->dumps = false;
  parts_->is_hybrid = false;
  parts_->fleet.all_reduce_dense(false);
  parts_->transpiled = nullptr;
  return parts_->fleet.distributed_optimizer(std::move(options));
}

Status Fleet::minimize(const Program& main, const Program& startup, const std::string& loss) {
  if (parts_->transpiled != nullptr) return parts_->transpiled->minimize(main, startup, loss);
  return parts_->fleet.minimize(*ops::standard_registry(), main, startup, loss);
}

std::shared_ptr<const Program> Fleet::main_program() const {
  if (parts_->transpiled != nullptr) return copy_of(parts_->transpiled->main_program());
  const fleet::RoleOutput* const made = parts_->fleet.programs();
  return made == nullptr ? nullptr : copy_of(made->programs.main.get());
}

std::shared_ptr<const Program> Fleet::startup_program() const {
  if (parts_->transpiled != nullptr) return copy_of(parts_->transpiled->startup_program());
  const fleet::RoleOutput* const made = parts_->fleet.programs();
  return made == nullptr ? nullptr : copy_of(made->programs.startup.get());
}

StatusOr<FleetDescription> Fleet::description() const {
  if (parts_->transpiled != nullptr)
    return InvalidArgument("description(): a job with a TranspilerStrategy has none");
  const fleet::RoleOutput* const made = parts_->fleet.programs();
  if (made == nullptr) return InvalidArgument("description() needs minimize() first");
  FleetDescription description{made->ps_desc, made->runtime};
  if (const fleet::DownpourInfo* const info = parts_->fleet.downpour_info()) {
    description.fleet_desc = info->fleet_desc;
    description.opt_info = fleet::opt_info_json(*info);
  }
  return description;
}

Status Fleet::init_server(const std::string& folder, const std::vector<std::string>& tables,
                          const FleetTableOptions& options, const ServerOptions& service) {
  MILLRACE_RETURN_IF_ERROR(check_server_options(service));
  if (!service.endpoint.empty())
    return InvalidArgument("service.endpoint: a server listens at its endpoint in the role");
  if (folder.empty() && !tables.empty())
    return InvalidArgument("init_server: tables need a folder to load them from");
  ps::ServerOptions own = service_of(service, parts_->connection);
  if (parts_->transpiled != nullptr) {
    if (!tables.empty() || options.seed != 0 || !options.disk_path.empty())
      return InvalidArgument("init_server: with a TranspilerStrategy there are no typed tables");
    return parts_->transpiled->init_server(folder, own,
                                           Internals::state(parts_->connection).transport);
  }
  const fleet::ServerTableOptions settings{options.seed, options.disk_path};
  if (folder.empty()) return parts_->fleet.init_server(settings, std::move(own));
  return parts_->fleet.init_server_from(folder, tables, settings, std::move(own));
}

Status Fleet::run_server() {
  if (parts_->transpiled != nullptr) return parts_->transpiled->run_server();
  return parts_->fleet.run_server(*Internals::state(parts_->connection).transport);
}
void Fleet::stop_server() {
  if (parts_->transpiled != nullptr) parts_->transpiled->stop_server();
  parts_->fleet.stop_server();
}

Status Fleet::init_worker(const FleetWorkerOptions& options) {
  fleet::WaitOptions wait;
  if (options.wait_for_servers) wait.timeout = *options.wait_for_servers;
  const fleet::WaitOptions* const waits = options.wait_for_servers ? &wait : nullptr;
  if (parts_->is_hybrid && parts_->transpiled == nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(const FleetRole own, role());
    return parts_->init_hybrid(own, options, waits);
  }
  MILLRACE_RETURN_IF_ERROR(check_no_group(options, parts_->transpiled != nullptr));
  if (parts_->transpiled != nullptr) return parts_->init_transpiled(options, waits);
  return parts_->fleet.init_worker(Internals::state(parts_->connection).transport, waits,
                                   parts_->client(options));
}

StatusOr<Arrays> Fleet::step(const Arrays& feeds, const std::vector<std::string>& fetches) {
  executor::NamedValues values;
  MILLRACE_RETURN_IF_ERROR(executor::to_values(feeds, values));
  std::vector<Value> results(fetches.size());
  MILLRACE_RETURN_IF_ERROR(parts_->step(values, fetches, results));
  return executor::to_arrays(fetches, results);
}

StatusOr<EpochResult> Fleet::train_from_dataset(Dataset& dataset, const EpochOptions& options) {
  if (parts_->dumps)
    return Status(StatusCode::kUnimplemented,
                  "train_from_dataset with trainer_desc_configs.dump_fields or dump_param")
        .with_hint("run-program dumps them, for jobs of transpile-program --fleet");
  return parts_->run_epoch(dataset, options);
}

StatusOr<Array> Fleet::get(const std::string& name) const {
  if (parts_->transpiled != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(const Value* const found, parts_->transpiled->find(name));
    return executor::to_array(name, *found);
  }
  fleet::FleetWorker* const worker = parts_->fleet.worker();
  const Value* const value = worker == nullptr ? nullptr : worker->scope().find_local(name);
  if (value == nullptr) return NotFound("this worker has no var '{}'", name);
  return executor::to_array(name, *value);
}

int64_t Fleet::first_step() const {
  return parts_->transpiled != nullptr ? parts_->transpiled->first_step()
                                       : parts_->fleet.first_step();
}
int64_t Fleet::next_step() const {
  return parts_->transpiled != nullptr ? parts_->transpiled->next_step()
                                       : parts_->fleet.next_step();
}
bool Fleet::must_go_back() const {
  return parts_->transpiled != nullptr ? parts_->transpiled->must_go_back()
                                       : parts_->fleet.must_go_back();
}
Status Fleet::go_back() {
  return parts_->transpiled != nullptr ? parts_->transpiled->go_back() : parts_->fleet.go_back();
}

Status Fleet::barrier_worker() {
  return parts_->transpiled != nullptr ? parts_->transpiled->barrier_worker()
                                       : parts_->fleet.barrier_worker();
}
Status Fleet::wait_for_all() {
  if (parts_->transpiled != nullptr) return parts_->transpiled->wait_for_all();
  return parts_->fleet.wait_for_all();
}
Status Fleet::stop_worker() {
  if (parts_->transpiled != nullptr) return parts_->transpiled->stop_worker();
  return parts_->fleet.stop_worker();
}
Status Fleet::save_persistables(const FleetFolder& to) {
  if (parts_->transpiled != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(const auto target, transpiled_target_of(to));
    return parts_->transpiled->save_persistables(target);
  }
  return parts_->fleet.save_persistables(target_of(to));
}
Status Fleet::save_inference_model(const FleetFolder& to, const std::vector<std::string>& feeds,
                                   const std::vector<std::string>& fetches) {
  if (parts_->transpiled != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(const auto target, transpiled_target_of(to));
    return parts_->transpiled->save_inference_model(target, feeds, fetches);
  }
  return parts_->fleet.save_inference_model(target_of(to), feeds, fetches);
}
Status Fleet::load_model(const FleetFolder& from) {
  if (parts_->transpiled != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(const auto target, transpiled_target_of(from));
    return parts_->transpiled->load_model(target);
  }
  return parts_->fleet.load_model(target_of(from));
}
Status Fleet::shrink() {
  return parts_->transpiled != nullptr ? parts_->transpiled->shrink() : parts_->fleet.shrink();
}

}  // namespace millrace::api
