#include "fleet/fleet.h"

#include "fleet/job/contexts.h"
#include "fleet/roles/file_share.h"
#include "fleet/saving/worker_saver.h"
#include "fleet/strategy/communicator_flags.h"
#include "framework/base/errors.h"
#include "ops/construct/builder.h"
#include "ops/minimize/minimize.h"
#include "ops/verify.h"

namespace millrace::fleet {

Fleet::~Fleet() = default;

Status Fleet::need_role(const char* call) const {
  if (role_) return Ok();
  return InvalidArgument("{}: the role is not known yet, call init() first", call);
}

Status Fleet::need_programs(const char* call, bool server) const {
  MILLRACE_RETURN_IF_ERROR(need_role(call));
  if (job() == nullptr)
    return InvalidArgument("{}: there are no programs yet, call minimize() first", call);
  if (role_->is_worker() != server) return Ok();
  return InvalidArgument("{}: expected a {}, this process is a {}", call,
                         server ? "server" : "worker", role_name(role_->role));
}

Status Fleet::init(RoleMaker role) {
  if (role.role == Role::kCoordinator)
    return Unimplemented("fleet jobs with a coordinator are not implemented");
  if (role.is_heter_worker() && !role.heter.device.empty() && role.heter.device != "cpu")
    return Unimplemented("heter workers compute on the CPU, HETER_DEVICE_TYPE asks for '{}'",
                         role.heter.device);
  if (role.has_heter_workers() && role.heter.stage_num > 2)
    return Unimplemented(
        "STAGE_NUM is {}: programs are split into the stages of workers and of heter workers only",
        role.heter.stage_num);
  if (role.is_collective)
    return Unimplemented("fleet jobs without servers (collective roles) are not implemented");
  role_ = std::move(role);
  remarks_.clear();
  return Ok();
}

std::vector<std::string> Fleet::remarks() const {
  std::vector<std::string> all = remarks_;
  if (output_)
    all.insert(all.end(), output_->programs.remarks.begin(), output_->programs.remarks.end());
  return all;
}

Status Fleet::init_from_environment(const EnvironmentReader& read) {
  MILLRACE_ASSIGN_OR_RETURN(RoleMaker role, role_from_environment(read));
  environment_ = read;
  const bool by_gloo = role.meeting.who != MeetingOptions::Who::kNone;
  MILLRACE_RETURN_IF_ERROR(init(std::move(role)));
  if (by_gloo)
    remarks_.emplace_back("PADDLE_WITH_GLOO has no effect: workers meet at their servers");
  return Ok();
}

StatusOr<RoleMaker> Fleet::role() const {
  MILLRACE_RETURN_IF_ERROR(need_role("role"));
  return *role_;
}

StatusOr<bool> Fleet::is_worker() const {
  MILLRACE_RETURN_IF_ERROR(need_role("is_worker"));
  return role_->is_worker();
}

StatusOr<bool> Fleet::is_server() const {
  MILLRACE_RETURN_IF_ERROR(need_role("is_server"));
  return role_->is_server();
}

StatusOr<bool> Fleet::is_heter_worker() const {
  MILLRACE_RETURN_IF_ERROR(need_role("is_heter_worker"));
  return role_->is_heter_worker();
}

StatusOr<bool> Fleet::is_first_worker() const {
  MILLRACE_RETURN_IF_ERROR(need_role("is_first_worker"));
  return role_->is_first_worker();
}

StatusOr<int> Fleet::worker_index() const {
  MILLRACE_RETURN_IF_ERROR(need_role("worker_index"));
  if (role_->is_worker()) return role_->id;
  return InvalidArgument("worker_index: this process is a {}", role_name(role_->role));
}

StatusOr<int> Fleet::worker_num() const {
  MILLRACE_RETURN_IF_ERROR(need_role("worker_num"));
  return role_->worker_num;
}

StatusOr<int> Fleet::server_index() const {
  MILLRACE_RETURN_IF_ERROR(need_role("server_index"));
  if (role_->is_server()) return role_->id;
  return InvalidArgument("server_index: this process is a {}", role_name(role_->role));
}

StatusOr<int> Fleet::server_num() const {
  MILLRACE_RETURN_IF_ERROR(need_role("server_num"));
  return role_->server_num();
}

StatusOr<std::vector<std::string>> Fleet::worker_endpoints() const {
  MILLRACE_RETURN_IF_ERROR(need_role("worker_endpoints"));
  return role_->worker_endpoints;
}

StatusOr<std::vector<std::string>> Fleet::server_endpoints() const {
  MILLRACE_RETURN_IF_ERROR(need_role("server_endpoints"));
  return role_->server_endpoints;
}

StatusOr<std::vector<std::string>> Fleet::split_files(const std::vector<std::string>& files) const {
  MILLRACE_ASSIGN_OR_RETURN(const int index, worker_index());
  return file_share(files, index, role_->worker_num);
}

Status Fleet::distributed_optimizer(MinimizeOptions optimizer, DistributedStrategy strategy) {
  MILLRACE_RETURN_IF_ERROR(need_role("distributed_optimizer"));
  MILLRACE_RETURN_IF_ERROR(strategy.mode().status());
  optimizer_ = std::move(optimizer);
  strategy_ = std::move(strategy);
  downpour_.reset();
  return Ok();
}

Status Fleet::distributed_optimizer(DownpourOptions options) {
  MILLRACE_RETURN_IF_ERROR(need_role("distributed_optimizer"));
  downpour_ = std::move(options);
  optimizer_.reset();
  strategy_ = {};
  return Ok();
}

JobSpec Fleet::job_spec() const {
  JobSpec spec;
  spec.strategy = strategy_;
  spec.servers = role_->server_endpoints;
  spec.workers = role_->worker_num;
  spec.worker_endpoints = role_->worker_endpoints;
  spec.heter = {role_->heter.all, heter_returned_};
  spec.environment = environment_;
  spec.scheduled_rate = scheduled_rate_;
  spec.all_reduces_dense = all_reduces_dense_;
  return spec;
}

Status Fleet::minimize(const ops::OpRegistry& registry, const Program& main, const Program& startup,
                       const std::string& loss) {
  MILLRACE_RETURN_IF_ERROR(need_role("minimize"));
  if (!optimizer_ && !downpour_)
    return InvalidArgument(
        "minimize: there is no optimizer yet, call distributed_optimizer() first");
  MILLRACE_RETURN_IF_ERROR(ops::check_program(registry, main));
  MILLRACE_RETURN_IF_ERROR(ops::check_program(registry, startup));
  output_.reset();
  job_.reset();
  downpour_job_.reset();
  if (downpour_) return minimize_downpour(registry, main, startup, loss);
  main_ = main.clone();
  startup_ = startup.clone();
  ops::Builder builder(registry, *main_, *startup_);
  MILLRACE_ASSIGN_OR_RETURN(const ops::MinimizeResult made,
                            ops::minimize(builder, loss, *optimizer_));
  const bool stepped = std::holds_alternative<SteppedRate>(optimizer_->learning_rate);
  scheduled_rate_ = stepped ? made.learning_rate : std::string();
  MILLRACE_ASSIGN_OR_RETURN(FleetJob job, FleetJob::create(*main_, *startup_, job_spec()));
  if (!role_->is_heter_worker()) {
    MILLRACE_ASSIGN_OR_RETURN(output_, job.role({role_->is_server(), role_->id}));
  }
  job_ = std::move(job);
  return Ok();
}

Status Fleet::minimize_downpour(const ops::OpRegistry& registry, const Program& main,
                                const Program& startup, const std::string& loss) {
  scheduled_rate_.clear();
  MILLRACE_ASSIGN_OR_RETURN(
      DownpourJob made, DownpourJob::create(registry, main, startup, loss, *downpour_, job_spec()));
  MILLRACE_ASSIGN_OR_RETURN(output_, made.role({role_->is_server(), role_->id}));
  strategy_ = made.job().spec().strategy;
  main_ = made.main().clone();
  downpour_job_ = std::move(made);
  return Ok();
}

Status Fleet::init_server(const ServerTableOptions& options, ps::ServerOptions service) {
  MILLRACE_RETURN_IF_ERROR(need_programs("init_server", /*server=*/true));
  if (role_->is_heter_worker()) return init_heter_worker(std::move(service));
  if (job()->spec().all_reduces_dense)
    MILLRACE_RETURN_IF_ERROR(check_hybrid_service(service, !strategy_.a_sync()));
  ServerSetup setup;
  setup.description = output_->ps_desc;
  setup.workers = role_->worker_num;
  setup.server = role_->id;
  setup.servers = role_->server_num();
  setup.tables = options;
  setup.service = std::move(service);
  MILLRACE_ASSIGN_OR_RETURN(server_, FleetServer::create(std::move(setup)));
  return Ok();
}

Status Fleet::init_heter_worker(ps::ServerOptions service) {
  const auto number = static_cast<size_t>(role_->id);
  if (number >= job()->heter_workers().size())
    return InvalidArgument("init_server: heter worker {} of {}", number,
                           job()->heter_workers().size());
  MILLRACE_ASSIGN_OR_RETURN(
      heter_worker_, HeterWorker::create(*job()->heter_workers()[number].main, std::move(service)));
  return Ok();
}

Status Fleet::init_server_from(const std::string& folder, const std::vector<std::string>& tables,
                               const ServerTableOptions& options, ps::ServerOptions service) {
  MILLRACE_RETURN_IF_ERROR(need_programs("init_server", /*server=*/true));
  if (role_->is_heter_worker())
    return InvalidArgument("init_server: a heter worker has no tables to load");
  MILLRACE_RETURN_IF_ERROR(init_server(options, std::move(service)));
  Status loaded = server_->load(folder, tables);
  if (!loaded.ok()) server_.reset();
  return loaded;
}

Status Fleet::run_server(ps::Transport& transport) {
  MILLRACE_RETURN_IF_ERROR(need_programs("run_server", /*server=*/true));
  if (heter_worker_ != nullptr)
    return heter_worker_->serve(transport, role_->heter.all[static_cast<size_t>(role_->id)]);
  if (server_ == nullptr)
    return InvalidArgument("run_server: there are no tables yet, call init_server() first");
  return server_->serve(transport, role_->server_endpoints[static_cast<size_t>(role_->id)]);
}

void Fleet::stop_server() {
  if (server_ != nullptr) server_->stop();
  if (heter_worker_ != nullptr) heter_worker_->stop();
}

WorkerSetup Fleet::worker_setup() const {
  WorkerSetup setup;
  setup.main = output_->programs.main.get();
  setup.startup = output_->programs.startup.get();
  setup.description = output_->ps_desc;
  setup.mode = job()->mode();
  setup.servers = role_->server_endpoints;
  setup.worker = role_->id;
  setup.workers = role_->worker_num;
  setup.send = send_contexts(job()->plan(), setup.servers, role_->id);
  setup.dense_tables = dense_receives(job()->plan());
  setup.communicator =
      communicator_flags(setup.mode, strategy_.a_sync_configs().k_steps, environment_);
  return setup;
}

std::vector<std::string> Fleet::peers_of_worker() const {
  std::vector<std::string> peers = role_->server_endpoints;
  peers.insert(peers.end(), role_->heter.all.begin(), role_->heter.all.end());
  return peers;
}

Status Fleet::init_worker(std::shared_ptr<ps::Transport> transport, const WaitOptions* wait,
                          const ps::ClientOptions& client, const GroupStart* group) {
  MILLRACE_RETURN_IF_ERROR(need_programs("init_worker", /*server=*/false));
  if (job()->spec().all_reduces_dense != (group != nullptr))
    return InvalidArgument("init_worker: {}",
                           group == nullptr
                               ? "the workers of this job average dense gradients by all-reduce, "
                                 "but nothing connects them"
                               : "the servers of this job have the dense parameters, so its "
                                 "workers are no group");
  if (worker_ != nullptr)
    return InvalidArgument("init_worker: the communicator of this worker is running already");
  const bool may_wait = environment_("FLAGS_LAUNCH_BARRIER").value_or("1") != "0";
  if (wait != nullptr && may_wait && strategy_.a_sync_configs().launch_barrier)
    MILLRACE_RETURN_IF_ERROR(wait_server_ready(peers_of_worker(), *wait));
  WorkerSetup setup = worker_setup();
  setup.client = client;
  if (group != nullptr) {
    setup.rings = group->rings;
    setup.scheduled_rate = scheduled_rate_;
  }
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<FleetWorker> worker,
                            FleetWorker::create(setup, std::move(transport)));
  if (group != nullptr && !group->folder.empty()) {
    worker->expect_loaded(true);
    if (role_->is_first_worker())
      MILLRACE_RETURN_IF_ERROR(load_worker_vars(*worker, group->folder));
  }
  MILLRACE_RETURN_IF_ERROR(worker->start());
  worker_ = std::move(worker);
  return Ok();
}

Status Fleet::need_worker(const char* call) const {
  MILLRACE_RETURN_IF_ERROR(need_programs(call, /*server=*/false));
  if (worker_ != nullptr) return Ok();
  return InvalidArgument("{}: this worker is not running, call init_worker() first", call);
}

Status Fleet::step(const executor::NamedValues& feeds, const std::vector<std::string>& fetches,
                   std::vector<Value>& results) {
  MILLRACE_RETURN_IF_ERROR(need_worker("step"));
  return worker_->step(feeds, fetches, results);
}

Status Fleet::go_back() {
  MILLRACE_RETURN_IF_ERROR(need_worker("go_back"));
  return worker_->go_back().status();
}

Status Fleet::stop_worker() {
  MILLRACE_RETURN_IF_ERROR(need_worker("stop_worker"));
  return worker_->stop();
}

Status Fleet::barrier_worker() {
  MILLRACE_RETURN_IF_ERROR(need_worker("barrier_worker"));
  return worker_->table_client().barrier(ps::CommBarrier::kWorker);
}

Status Fleet::wait_for_all() {
  MILLRACE_RETURN_IF_ERROR(need_worker("wait_for_all"));
  return worker_->wait_for_all();
}

Status Fleet::save_persistables(const FleetSaveTarget& to) {
  MILLRACE_RETURN_IF_ERROR(need_worker("save_persistables"));
  return save_worker_persistables(*worker_, to);
}

Status Fleet::save_inference_model(const FleetSaveTarget& to, const std::vector<std::string>& feeds,
                                   const std::vector<std::string>& fetches) {
  MILLRACE_RETURN_IF_ERROR(need_worker("save_inference_model"));
  return save_worker_model(*worker_, to, *main_, feeds, fetches);
}

Status Fleet::load_model(const FleetSaveTarget& from) {
  MILLRACE_RETURN_IF_ERROR(need_worker("load_model"));
  return load_worker_persistables(*worker_, from);
}

Status Fleet::shrink() {
  MILLRACE_RETURN_IF_ERROR(need_worker("shrink"));
  if (worker_->tables() == nullptr) return Ok();
  ps::TableClient& client = worker_->tables()->client();
  MILLRACE_RETURN_IF_ERROR(client.barrier(ps::CommBarrier::kShrink));
  Status ended;
  for (const auto& [id, entry] : worker_->tables()->all()) {
    if (role_->is_first_worker() && ended.ok()) ended = client.shrink(id);
  }
  // do not return before the barrier: the others would wait for this worker
  Status met = client.barrier(ps::CommBarrier::kShrink);
  return ended.ok() ? met : ended;
}

}  // namespace millrace::fleet
