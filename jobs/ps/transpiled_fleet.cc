#include "jobs/ps/transpiled_fleet.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <variant>

#include <stdlib.h>

#include "framework/base/errors.h"
#include "framework/read_program.h"
#include "io/paths.h"
#include "jobs/distribute/distribution.h"
#include "jobs/distribute/made_program.h"
#include "jobs/ps/job_folder.h"
#include "ops/construct/builder.h"
#include "ops/minimize/minimize.h"
#include "ops/registry.h"
#include "ops/verify.h"

namespace millrace::jobs {

namespace transpiled_fleet {

namespace fs = std::filesystem;

constexpr const char* kTraining = "__training__";

Status check_strategy(const TranspiledStrategy& strategy, const MinimizeOptions& optimizer) {
  const transpiler::DistributeTranspilerConfig& config = strategy.config;
  if (config.mode != "pserver")
    return InvalidArgument("config.mode: expected pserver, found '{}'", config.mode);
  if (config.geo_sgd_mode && (config.sync_mode || !config.runtime_split_send_recv))
    return InvalidArgument(
        "config.geo_sgd_mode: expected sync_mode false and runtime_split_send_recv true");
  if (config.half_async && (config.sync_mode || config.geo_sgd_mode))
    return InvalidArgument("config.half_async: expected sync_mode false and geo_sgd_mode false");
  if (std::holds_alternative<SteppedRate>(optimizer.learning_rate))
    return Unimplemented(
               "a learning rate that is set in each step, in a job whose servers run the optimizer")
        .with_hint("ops of the program may compute the rate, such as a Decay");
  return Ok();
}

Status write_file(const fs::path& path, std::string_view bytes) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error)
    return IoError("cannot create the folder: {}", error.message()).in_file(path.parent_path());
  return write_file_atomically(path.string(), bytes, Replace::kYes, Flush::kNo);
}

}  // namespace transpiled_fleet

class TranspiledFleet::Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  static StatusOr<std::unique_ptr<Folder>> create(const std::string& scratch) {
    std::string path = scratch + "/millrace_job_XXXXXX";
    if (::mkdtemp(path.data()) == nullptr)
      return IoError("cannot create a temporary folder: {}", std::strerror(errno)).in_file(scratch);
    return std::make_unique<Folder>(std::move(path));
  }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TranspiledFleet::~TranspiledFleet() = default;

StatusOr<std::unique_ptr<TranspiledFleet>> TranspiledFleet::create(fleet::RoleMaker role,
                                                                   MinimizeOptions optimizer,
                                                                   TranspiledStrategy strategy,
                                                                   const std::string& scratch) {
  MILLRACE_RETURN_IF_ERROR(transpiled_fleet::check_strategy(strategy, optimizer));
  if (role.server_endpoints.empty())
    return Unimplemented("jobs without servers are not implemented with this strategy");
  std::unique_ptr<TranspiledFleet> made(new TranspiledFleet());
  made->role_ = std::move(role);
  made->optimizer_ = std::move(optimizer);
  made->strategy_ = std::move(strategy);
  made->scratch_ = scratch;
  return made;
}

Status TranspiledFleet::need_programs(const char* call, bool server) const {
  if (main_ == nullptr)
    return InvalidArgument("{}: there are no programs yet, call minimize() first", call);
  if (role_.is_server() == server) return Ok();
  return InvalidArgument("{}: expected a {}, this process is a {}", call,
                         server ? "server" : "worker", fleet::role_name(role_.role));
}

Status TranspiledFleet::need_worker(const char* call) const {
  MILLRACE_RETURN_IF_ERROR(need_programs(call, /*server=*/false));
  if (trainer_ != nullptr && !stopped_) return Ok();
  return InvalidArgument("{}: this worker {}", call,
                         stopped_ ? "has stopped" : "is not running, call init_worker() first");
}

Status TranspiledFleet::need_training(const char* call) const {
  MILLRACE_RETURN_IF_ERROR(need_worker(call));
  if (trains_) return Ok();
  return InvalidArgument("{}: training has ended by wait_for_all()", call);
}

StatusOr<std::unique_ptr<TranspiledFleet::Folder>> TranspiledFleet::write(
    const std::vector<JobFile>& files) const {
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Folder> folder, Folder::create(scratch_));
  for (const JobFile& file : files)
    MILLRACE_RETURN_IF_ERROR(transpiled_fleet::write_file(
        transpiled_fleet::fs::path(folder->path()) / file.role / file.name, file.bytes));
  return folder;
}

Status TranspiledFleet::minimize(const Program& main, const Program& startup,
                                 const std::string& loss) {
  if (trainer_ != nullptr || server_ != nullptr)
    return InvalidArgument("minimize: this process runs already");
  const std::unique_ptr<ops::OpRegistry> registry = ops::standard_registry();
  MILLRACE_RETURN_IF_ERROR(ops::check_program(*registry, main));
  MILLRACE_RETURN_IF_ERROR(ops::check_program(*registry, startup));
  const std::unique_ptr<Program> training = main.clone();
  const std::unique_ptr<Program> initial = startup.clone();
  ops::Builder builder(*registry, *training, *initial);
  MILLRACE_ASSIGN_OR_RETURN(const ops::MinimizeResult made,
                            ops::minimize(builder, loss, optimizer_));
  remarks_.clear();
  for (const Status& warning : made.warnings) remarks_.push_back(warning.to_string());
  training_ = {{"", transpiled_fleet::kTraining, made_program_bytes(*training, /*as_text=*/false)}};
  return distribute(*registry, *training, *initial);
}

Status TranspiledFleet::distribute(const ops::OpRegistry& registry, const Program& main,
                                   const Program& startup) {
  DistributionOptions how;
  how.config = strategy_.config;
  how.sparse_tables = strategy_.sparse_tables;
  how.transpiler = strategy_.config.geo_sgd_mode ? "geo" : "distribute";
  how.trainers = {role_.is_server() ? 0 : role_.id};
  how.arguments.pservers = fleet::join_list(role_.server_endpoints);
  how.arguments.trainers = std::to_string(role_.worker_num);
  how.arguments.sync_mode = strategy_.config.sync_mode;
  MILLRACE_ASSIGN_OR_RETURN(const Distribution made,
                            Distribution::make(main.clone(), startup.clone(), registry, how));
  files_.clear();
  servers_.clear();
  const std::string own = (role_.is_server() ? "pserver_" : "trainer_") + std::to_string(role_.id);
  for (const std::vector<JobFile>& files : made.files()) {
    for (const JobFile& each : files) {
      if (role_.is_first_worker() && each.name == "__model__" &&
          each.role.starts_with("pserver_")) {
        MILLRACE_ASSIGN_OR_RETURN(servers_.emplace_back(),
                                  read_program_bytes(each.bytes, each.role + "/" + each.name));
      }
      if (!each.role.empty() && each.role != own) continue;
      files_.push_back(each);
      std::unique_ptr<Program>* const program = each.name == "__model__"     ? &main_
                                                : each.name == "__startup__" ? &startup_
                                                                             : nullptr;
      if (program == nullptr) continue;
      MILLRACE_ASSIGN_OR_RETURN(*program, read_program_bytes(each.bytes, own + "/" + each.name));
    }
  }
  for (const std::string& remark : made.remarks()) remarks_.push_back(remark);
  return Ok();
}

Status TranspiledFleet::init_server(const std::string& folder, const ps::ServerOptions& service,
                                    std::shared_ptr<ps::Transport> transport) {
  MILLRACE_RETURN_IF_ERROR(need_programs("init_server", /*server=*/true));
  if (server_ != nullptr) return InvalidArgument("init_server: this server has its variables");
  if (!folder.empty() && !io::is_folder(folder))
    return NotFound("init_server: there is no such folder").in_file(folder);
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Folder> written, write(files_));
  const JobFolder job{written->path()};
  Server::Files files;
  files.program = job.program("pserver", role_.id);
  files.startup = job.startup("pserver", role_.id);
  files.slices = job.slices();
  files.params = folder;
  Server::Settings settings;
  settings.service = service;
  settings.loading_threads = service.threads;
  MILLRACE_ASSIGN_OR_RETURN(server_, open_server(files, std::move(settings), std::move(transport)));
  return Ok();
}

Status TranspiledFleet::run_server() {
  MILLRACE_RETURN_IF_ERROR(need_programs("run_server", /*server=*/true));
  if (server_ == nullptr)
    return InvalidArgument("run_server: the server has no variables yet, call init_server() first");
  return server_->serve();
}

void TranspiledFleet::stop_server() {
  if (server_ != nullptr) server_->stop();
}

Status TranspiledFleet::init_worker(std::shared_ptr<ps::Transport> transport,
                                    const fleet::WaitOptions* wait, Trainer::Settings settings,
                                    const std::string& folder) {
  MILLRACE_RETURN_IF_ERROR(need_programs("init_worker", /*server=*/false));
  if (trainer_ != nullptr) return InvalidArgument("init_worker: this worker is running already");
  if (wait != nullptr && strategy_.config.wait_port)
    MILLRACE_RETURN_IF_ERROR(fleet::wait_server_ready(role_.server_endpoints, *wait));
  settings.trainer = role_.id;
  for (const auto& [name, value] : strategy_.communicator) settings.communicator[name] = value;
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Folder> written, write(files_));
  const JobFolder job{written->path()};
  const Trainer::Files files{job.program("trainer", role_.id), job.startup("trainer", role_.id),
                             job.slices(), folder};
  MILLRACE_ASSIGN_OR_RETURN(trainer_, open_trainer(files, settings, std::move(transport)));
  next_step_ = trainer_->first_step();
  trains_ = true;
  return Ok();
}

Status TranspiledFleet::step(const executor::NamedValues& feeds,
                             const std::vector<std::string>& fetches, std::vector<Value>& results) {
  MILLRACE_RETURN_IF_ERROR(need_training("step"));
  executor::NamedValues named;
  for (size_t i = 0; i < fetches.size(); ++i) named[fetches[i]] = std::move(results[i]);
  MILLRACE_RETURN_IF_ERROR(trainer_->step(next_step_, feeds, fetches, named));
  ++next_step_;
  for (size_t i = 0; i < fetches.size(); ++i) results[i] = std::move(named[fetches[i]]);
  return Ok();
}

Status TranspiledFleet::go_back() {
  MILLRACE_RETURN_IF_ERROR(need_programs("go_back", /*server=*/false));
  if (trainer_ == nullptr)
    return InvalidArgument("go_back: this worker is not running, call init_worker() first");
  MILLRACE_ASSIGN_OR_RETURN(next_step_, trainer_->go_back_until_settled());
  trains_ = true;
  stopped_ = false;
  return Ok();
}

StatusOr<const Value*> TranspiledFleet::find(const std::string& name) const {
  const Value* const value = trainer_ == nullptr ? nullptr : trainer_->find(name);
  if (value == nullptr) return NotFound("this worker has no var '{}'", name);
  return value;
}

Status TranspiledFleet::barrier_worker() {
  MILLRACE_RETURN_IF_ERROR(need_training("barrier_worker"));
  return trainer_->barrier(ps::CommBarrier::kWorker);
}

Status TranspiledFleet::load_model(const TranspiledSaveTarget& from) {
  MILLRACE_RETURN_IF_ERROR(need_training("load_model"));
  MILLRACE_ASSIGN_OR_RETURN(const std::string folder, io::path_below(from.root, from.folder));
  std::vector<const Program*> servers;
  for (const std::unique_ptr<Program>& program : servers_) servers.push_back(program.get());
  return trainer_->load_model(servers, folder);
}

Status TranspiledFleet::shrink() {
  MILLRACE_RETURN_IF_ERROR(need_training("shrink"));
  return trainer_->end_day();
}

Status TranspiledFleet::wait_for_all() {
  MILLRACE_RETURN_IF_ERROR(need_worker("wait_for_all"));
  trains_ = false;
  return trainer_->wait_for_all();
}

Status TranspiledFleet::stop_worker() {
  MILLRACE_RETURN_IF_ERROR(need_worker("stop_worker"));
  trains_ = false;
  stopped_ = true;
  return trainer_->finish({});
}

Status TranspiledFleet::save(const TranspiledSaveTarget& to, Trainer::Ending ending) {
  if (to.root.empty())
    return InvalidArgument("root of what is saved: expected a folder, found an empty name");
  ending.root = to.root;
  ending.replace = to.replace;
  return trainer_->save(ending);
}

Status TranspiledFleet::save_persistables(const TranspiledSaveTarget& to) {
  MILLRACE_RETURN_IF_ERROR(need_worker("save_persistables"));
  Trainer::Ending ending;
  ending.params = to.root + "/" + to.folder;
  return save(to, std::move(ending));
}

Status TranspiledFleet::save_inference_model(const TranspiledSaveTarget& to,
                                             const std::vector<std::string>& feeds,
                                             const std::vector<std::string>& fetches) {
  MILLRACE_RETURN_IF_ERROR(need_worker("save_inference_model"));
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Folder> written, write(training_));
  Trainer::Ending ending;
  ending.model = to.root + "/" + to.folder;
  ending.model_program = written->path() + "/" + transpiled_fleet::kTraining;
  ending.model_feeds = feeds;
  ending.model_fetches = fetches;
  return save(to, std::move(ending));
}

}  // namespace millrace::jobs
