#include "tools/run/cluster.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "io/npz.h"
#include "jobs/data/feeder.h"
#include "jobs/ps/fleet_role.h"
#include "jobs/stats/job_report.h"
#include "ps/transport/inproc.h"
#include "tools/common/signal_watch.h"
#include "tools/run/progress.h"
#include "tools/run/roles.h"

namespace millrace::tools {
namespace {

using executor::NamedValues;
using jobs::Server;
using jobs::Trainer;
using jobs::TrainerStats;
using Steps = std::vector<NamedValues>;

// The folder of a transpiled job: trainer_<i>, pserver_<i>, slices.json.
struct Folder {
  std::string path;
  int trainers = 0;
  int servers = 0;

  [[nodiscard]] std::string program(const char* role, int index) const {
    return fmt::format("{}/{}_{}/__model__", path, role, index);
  }
  [[nodiscard]] std::string startup(const char* role, int index) const {
    return fmt::format("{}/{}_{}/__startup__", path, role, index);
  }
  [[nodiscard]] std::string slices() const { return path + "/slices.json"; }
};

StatusOr<Folder> open_folder(const std::string& path) {
  Folder folder{path, 0, 0};
  while (std::filesystem::exists(folder.program("trainer", folder.trainers))) ++folder.trainers;
  while (std::filesystem::exists(folder.program("pserver", folder.servers))) ++folder.servers;
  if (folder.trainers > 0 && folder.servers > 0) return folder;
  return NotFound("'{}' has {} trainers and {} servers, expected trainer_0 and pserver_0 at least",
                  path, folder.trainers, folder.servers)
      .with_hint("create such a folder with transpile-program --trainer-id all");
}

// Members "tT/stepK/<var>" by trainer and step.
StatusOr<std::vector<Steps>> read_feeds_of_all(const RunOptions& options, int trainers) {
  std::vector<Steps> feeds(static_cast<size_t>(trainers));
  if (options.feed_steps.empty()) {
    for (Steps& steps : feeds) steps.resize(static_cast<size_t>(options.steps));
    return feeds;
  }
  MILLRACE_ASSIGN_OR_RETURN(NamedValues all, io::read_values(options.feed_steps));
  std::vector<NamedValues> by_trainer(feeds.size());
  for (auto& [name, value] : all) {
    const auto [head, rest] = llvm::StringRef(name).split('/');
    size_t trainer = 0;
    if (!head.startswith("t") || head.drop_front(1).getAsInteger(10, trainer) || rest.empty())
      return InvalidData("member '{}': expected a name like t0/step0/x", name)
          .in_file(options.feed_steps);
    if (trainer >= feeds.size())
      return InvalidData("member '{}' is for trainer {}, but the job has {}", name, trainer,
                         feeds.size())
          .in_file(options.feed_steps);
    by_trainer[trainer][rest.str()] = std::move(value);
  }
  for (size_t t = 0; t < feeds.size(); ++t) {
    MILLRACE_ASSIGN_OR_RETURN(
        feeds[t], jobs::split_steps(std::move(by_trainer[t]), options.steps, options.feed_steps));
  }
  return feeds;
}

// Coordinates the stop of all trainers after a signal: all finish the last step that any of them
// has begun, so that no step is done by only some of them.
class CommonStop {
 public:
  explicit CommonStop(const SignalWatch& watch) : watch_(watch) {}
  // Call before each step. \returns false if the step is not to be run
  bool begin(size_t step) {
    const std::lock_guard lock(mutex_);
    if (watch_.stopped()) stopped_ = true;
    if (stopped_ && step >= begun_) return false;
    begun_ = std::max(begun_, step + 1);
    return true;
  }
  [[nodiscard]] bool stopped() const {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }

 private:
  const SignalWatch& watch_;
  mutable std::mutex mutex_;
  size_t begun_ = 0;  ///< steps
  bool stopped_ = false;
};

// State that all roles share.
class Cluster {
 public:
  Cluster(Tool& tool, const RunOptions& options, Folder folder, const SignalWatch& watch)
      : tool_(tool), options_(options), folder_(std::move(folder)), watch_(watch), stop_(watch) {}

  StatusOr<int> run();

 private:
  Status open_servers();
  Status run_trainer(int id, const Steps& feeds, NamedValues& results, NamedValues& gathered,
                     TrainerStats& stats);
  Status write_report(const std::vector<TrainerStats>& trainers);
  void stop_servers() {
    transport_->close();
    for (const auto& server : servers_) server->stop();
  }
  [[nodiscard]] int threads_for(int roles) const {
    return std::max(1, tool_.common().threads / roles);
  }

  Tool& tool_;
  const RunOptions& options_;
  Folder folder_;
  const SignalWatch& watch_;
  CommonStop stop_;
  std::shared_ptr<ps::InprocTransport> transport_ = std::make_shared<ps::InprocTransport>();
  std::vector<std::unique_ptr<Server>> servers_;
};

Status Cluster::open_servers() {
  PsFlags flags = options_.ps;
  flags.silence_timeout_ms = 0;  // trainers in this process cannot be lost
  for (int i = 0; i < folder_.servers; ++i) {
    const Server::Files files{folder_.program("pserver", i), folder_.startup("pserver", i),
                              folder_.slices(), options_.params};
    MILLRACE_ASSIGN_OR_RETURN(Server::Settings settings,
                              server_settings(tool_, flags, options_.allow_dir));
    settings.service.threads = threads_for(folder_.servers);
    MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Server> server,
                              jobs::open_server(files, std::move(settings), transport_));
    servers_.push_back(std::move(server));
  }
  return Ok();
}

Status Cluster::run_trainer(int id, const Steps& feeds, NamedValues& results, NamedValues& gathered,
                            TrainerStats& stats) {
  const Trainer::Files files{folder_.program("trainer", id), folder_.startup("trainer", id),
                             folder_.slices(), options_.params};
  PsFlags flags = options_.ps;
  flags.silence_timeout_ms = 0;
  MILLRACE_ASSIGN_OR_RETURN(Trainer::Settings settings, trainer_settings(tool_, flags));
  settings.trainer = id;
  settings.threads = threads_for(folder_.trainers);
  settings.optimize = options_.optimize;
  settings.files_root = options_.allow_dir;
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> job,
                            jobs::open_trainer(files, settings, transport_));
  if (!options_.ps.report.empty()) job->keep_stats(nullptr);
  // Shows the progress of trainer 0 only; the others run at the same pace.
  const std::optional<ProgressMode> mode = progress_mode(options_.progress);
  const bool shows = id == 0 && mode && !tool_.common().quiet;
  Progress progress(shows ? *mode : ProgressMode::kNever);
  ProgressState state;
  state.steps = static_cast<int64_t>(feeds.size());
  state.epoch = state.epochs = 1;
  NamedValues values;
  for (size_t k = 0; k < feeds.size() && stop_.begin(k); ++k) {
    MILLRACE_RETURN_IF_ERROR(
        job->step(static_cast<int64_t>(k), feeds[k], options_.fetches, values));
    stats = job->stats();
    state.step = static_cast<int64_t>(k) + 1;
    state.examples = stats.examples * folder_.trainers;
    state.loss = stats.losses.empty() ? std::nullopt : std::optional(stats.losses.back());
    progress.update(state);
    for (auto& [name, value] : values)
      results[fmt::format("t{}/step{}/{}", id, k, name)] = std::move(value);
  }
  if (shows) progress.finish(state);
  if (stop_.stopped()) return job->finish({});
  const bool gathers = id == 0 && !options_.save_persistables.empty();
  Trainer::Ending ending = ending_of(tool_, options_);
  if (gathers) ending.gather = &gathered;
  return job->finish(ending);
}

Status Cluster::write_report(const std::vector<TrainerStats>& trainers) {
  if (options_.ps.report.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const std::string page, jobs::make_job_report(folder_.path, trainers));
  return tool_.write_file(options_.ps.report, page);
}

// The root cause: an error of a process itself is preferred to an error that reports a lost peer.
Status first_cause(llvm::ArrayRef<Status> results) {
  Status lost;
  for (const Status& status : results) {
    if (status.ok()) continue;
    if (status.code() != StatusCode::kDistributed) return status;
    if (lost.ok()) lost = status;
  }
  return lost;
}

StatusOr<int> Cluster::run() {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<Steps> feeds,
                            read_feeds_of_all(options_, folder_.trainers));
  MILLRACE_RETURN_IF_ERROR(open_servers());
  const auto servers = static_cast<size_t>(folder_.servers);
  const auto trainers = static_cast<size_t>(folder_.trainers);
  std::vector<Status> results(servers + trainers);
  std::vector<NamedValues> outputs(trainers);
  NamedValues gathered;
  std::vector<TrainerStats> stats(trainers);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < servers; ++i) {
    threads.emplace_back([&, i] {
      results[i] = servers_[i]->serve();
      if (!results[i].ok()) stop_servers();
    });
  }
  for (size_t t = 0; t < trainers; ++t) {
    threads.emplace_back([&, t] {
      Status& result = results[servers + t];
      result = run_trainer(static_cast<int>(t), feeds[t], outputs[t], gathered, stats[t]);
      // otherwise the others would wait for this one
      if (!result.ok()) stop_servers();
    });
  }
  for (std::thread& thread : threads) thread.join();
  MILLRACE_RETURN_IF_ERROR(first_cause(results));
  if (stop_.stopped()) {
    tool_.log(LogLevel::kWarning, fmt::format("stopped by signal {}", watch_.seen()));
    return watch_.exit_code();
  }
  tool_.log(LogLevel::kInfo, jobs::job_summary(stats));
  MILLRACE_RETURN_IF_ERROR(write_report(stats));
  NamedValues all;
  for (NamedValues& output : outputs) all.merge(output);
  MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::npz_bytes(all));
  if (!tool_.common().output.empty()) MILLRACE_RETURN_IF_ERROR(tool_.write_output(bytes));
  if (!options_.save_persistables.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string saved, io::npz_bytes(gathered));
    MILLRACE_RETURN_IF_ERROR(tool_.write_file(options_.save_persistables, saved));
  }
  return kDone;
}

}  // namespace

StatusOr<int> run_cluster(Tool& tool, const RunOptions& options) {
  if (options.ps.transpiled.empty()) {
    return Status(StatusCode::kUsage,
                  "--cluster: expected the folder of the transpiled job (--transpiled)");
  }
  MILLRACE_ASSIGN_OR_RETURN(Folder folder, open_folder(options.ps.transpiled));
  if (!options.ps.report.empty() && jobs::is_fleet_role(folder.program("trainer", 0)))
    return Unimplemented("--report of a fleet job");
  SignalWatch watch;  // must be created before other threads
  watch.start({});
  return Cluster(tool, options, std::move(folder), watch).run();
}

}  // namespace millrace::tools
