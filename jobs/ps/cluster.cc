#include "jobs/ps/cluster.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "executor/collective/shared_group.h"
#include "executor/gpu/gpu_ops.h"
#include "framework/base/errors.h"
#include "framework/base/exceptions.h"
#include "io/npz.h"
#include "jobs/data/feeder.h"
#include "ps/kill_points.h"
#include "ps/transport/inproc.h"

namespace millrace::jobs {
namespace {

using executor::NamedValues;
using Steps = std::vector<NamedValues>;

// Members "tT/stepK/<var>" by trainer and step.
StatusOr<std::vector<Steps>> read_feeds_of_all(const ClusterOptions& options) {
  std::vector<Steps> feeds(static_cast<size_t>(options.folder.trainers));
  if (options.steps_file.empty()) {
    for (Steps& steps : feeds) steps.resize(static_cast<size_t>(options.steps));
    return feeds;
  }
  MILLRACE_ASSIGN_OR_RETURN(NamedValues all, io::read_values(options.steps_file));
  std::vector<NamedValues> by_trainer(feeds.size());
  for (auto& [name, value] : all) {
    const auto [head, rest] = llvm::StringRef(name).split('/');
    size_t trainer = 0;
    if (!head.startswith("t") || head.drop_front(1).getAsInteger(10, trainer) || rest.empty() ||
        head.drop_front(1) != std::to_string(trainer))
      return InvalidData("member '{}': expected a name like t0/step0/x", name)
          .in_file(options.steps_file);
    if (trainer >= feeds.size())
      return InvalidData("member '{}' is for trainer {}, but the job has {}", name, trainer,
                         feeds.size())
          .in_file(options.steps_file);
    by_trainer[trainer][rest.str()] = std::move(value);
  }
  for (size_t t = 0; t < feeds.size(); ++t) {
    MILLRACE_ASSIGN_OR_RETURN(
        feeds[t], split_steps(std::move(by_trainer[t]), options.steps, options.steps_file));
  }
  return feeds;
}

// Coordinates the stop of all trainers: all finish the last step that any of them has begun, so
// that no step is done by only some of them.
class CommonStop {
 public:
  explicit CommonStop(const std::function<bool()>& wanted) : wanted_(wanted) {}
  // Call before each step. \returns false if the step is not to be run
  bool begin(size_t step) {
    const std::lock_guard lock(mutex_);
    if (wanted_()) stopped_ = true;
    if (stopped_ && step >= begun_) return false;
    begun_ = std::max(begun_, step + 1);
    return true;
  }
  [[nodiscard]] bool stopped() const {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }

 private:
  const std::function<bool()>& wanted_;
  mutable std::mutex mutex_;
  size_t begun_ = 0;  ///< steps
  bool stopped_ = false;
};

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

// State that all roles share.
class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options) : options_(options), stop_(options.stopped) {}

  StatusOr<ClusterResult> run();

 private:
  Status open_servers();
  Status open_one_server(const Server::Files& files, Server::Settings settings);
  StatusOr<std::unique_ptr<Trainer>> open_one_trainer(int id);
  /// The group of a trainer with the others, which are threads.
  StatusOr<std::shared_ptr<executor::Rings>> ranks_of(int trainer);
  Status run_trainer(int id, const Steps& feeds, NamedValues& fetched, NamedValues& gathered,
                     TrainerStats& stats);
  Status train(int id, Trainer& job, const Steps& feeds, NamedValues& fetched, TrainerStats& stats);
  Status train_side_by_side(int id, Trainer& job, const Steps& feeds, NamedValues& fetched);
  void stop_servers() {
    transport_->close();
    for (const auto& server : servers_) server->stop();
  }
  [[nodiscard]] int threads_for(int roles) const { return std::max(1, options_.threads / roles); }

  const ClusterOptions& options_;
  CommonStop stop_;
  std::shared_ptr<ps::InprocTransport> transport_ = std::make_shared<ps::InprocTransport>();
  std::vector<std::unique_ptr<Server>> servers_;
  std::mutex grouping_;
  std::vector<std::unique_ptr<executor::CollectiveGroup>> groups_;  ///< by trainer; guarded by it
};

Status Cluster::open_one_server(const Server::Files& files, Server::Settings settings) {
  if (!options_.kill_point.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(settings.service.kill_point,
                              ps::KillPoint::parse(options_.kill_point));
  }
  MILLRACE_ASSIGN_OR_RETURN(servers_.emplace_back(),
                            open_server(files, std::move(settings), transport_));
  return Ok();
}

Status Cluster::open_servers() {
  const JobFolder& folder = options_.folder;
  for (int i = 0; i < folder.servers; ++i) {
    Server::Settings settings = options_.server;
    settings.service.threads = threads_for(folder.servers);
    MILLRACE_RETURN_IF_ERROR(
        open_one_server({folder.program("pserver", i), folder.startup("pserver", i),
                         folder.slices(), options_.params},
                        std::move(settings)));
    if (const int trainers = servers_.back()->trainers(); trainers != folder.trainers)
      return InvalidData("server {} expects {} trainers, but the folder has programs of {}", i,
                         trainers, folder.trainers)
          .in_file(folder.path)
          .with_hint("transpile-program --trainer-id all writes those of all trainers");
  }
  for (int i = 0; i < folder.heter_workers; ++i) {
    Server::Settings settings = heter_settings(options_.server, i);
    settings.service.threads = threads_for(folder.heter_workers);
    MILLRACE_RETURN_IF_ERROR(open_one_server(
        {folder.program("heter", i), folder.startup("heter", i), "", ""}, std::move(settings)));
  }
  return Ok();
}

StatusOr<std::shared_ptr<executor::Rings>> Cluster::ranks_of(int trainer) {
  const std::lock_guard lock(grouping_);
  if (groups_.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(groups_, executor::make_thread_groups(options_.folder.trainers));
  }
  const auto number = static_cast<size_t>(trainer);
  const auto group =
      std::make_shared<std::unique_ptr<executor::CollectiveGroup>>(std::move(groups_[number]));
  return std::make_shared<executor::Rings>(
      [group]() -> StatusOr<std::unique_ptr<executor::CollectiveGroup>> {
        return std::move(*group);
      },
      std::vector<std::string>(), trainer);
}

StatusOr<std::unique_ptr<Trainer>> Cluster::open_one_trainer(int id) {
  const JobFolder& folder = options_.folder;
  const Trainer::Files files{folder.program("trainer", id), folder.startup("trainer", id),
                             folder.slices(), options_.params};
  Trainer::Settings settings = options_.trainer;
  settings.trainer = id;
  settings.threads = threads_for(folder.trainers);
  settings.ranks = [this](const std::vector<std::string>& /*endpoints*/, int trainer,
                          int /*trainers*/) { return ranks_of(trainer); };
  if (!options_.kill_point.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(settings.client.kill_point,
                              ps::KillPoint::parse(options_.kill_point));
  }
  return open_trainer(files, settings, transport_);
}

Status Cluster::train(int id, Trainer& job, const Steps& feeds, NamedValues& fetched,
                      TrainerStats& stats) {
  ProgressSink* const progress = id == 0 ? options_.progress : nullptr;
  if (progress != nullptr) progress->begin();
  ProgressState state;
  state.steps = static_cast<int64_t>(feeds.size());
  state.epoch = state.epochs = 1;
  NamedValues values;
  for (size_t k = 0; k < feeds.size() && stop_.begin(k); ++k) {
    MILLRACE_RETURN_IF_ERROR(job.step(static_cast<int64_t>(k), feeds[k], options_.fetches, values));
    stats = job.stats();
    state.step = static_cast<int64_t>(k) + 1;
    state.examples = stats.examples * options_.folder.trainers;
    state.loss = stats.losses.empty() ? std::nullopt : std::optional(stats.losses.back());
    if (progress != nullptr) progress->update(state);
    for (auto& [name, value] : values)
      fetched[fmt::format("t{}/step{}/{}", id, k, name)] = std::move(value);
  }
  if (progress != nullptr) progress->finish(state);
  return Ok();
}

// Takes steps in order, until there is none left, the job is to end, or a thread has failed.
class StepsInThreads {
 public:
  StepsInThreads(size_t count, CommonStop& stop) : count_(count), stop_(stop) {}

  bool take(size_t& step) {
    const std::lock_guard lock(mutex_);
    if (!failed_.ok() || next_ == count_ || !stop_.begin(next_)) return false;
    step = next_++;
    return true;
  }
  void fail(Status status) {
    const std::lock_guard lock(mutex_);
    if (failed_.ok()) failed_ = std::move(status);
  }
  [[nodiscard]] const Status& failed() const { return failed_; }

 private:
  const size_t count_;
  CommonStop& stop_;
  std::mutex mutex_;
  size_t next_ = 0;
  Status failed_;
};

Status Cluster::train_side_by_side(int id, Trainer& job, const Steps& feeds, NamedValues& fetched) {
  StepsInThreads steps(feeds.size(), stop_);
  std::mutex mutex;
  const auto run_steps = [&](int worker) -> Status {
    NamedValues values;
    for (size_t k = 0; steps.take(k);) {
      MILLRACE_RETURN_IF_ERROR(
          job.worker_step(worker, static_cast<int64_t>(k), feeds[k], options_.fetches, values));
      const std::lock_guard lock(mutex);
      for (auto& [name, value] : values)
        fetched[fmt::format("t{}/step{}/{}", id, k, name)] = std::move(value);
    }
    return Ok();
  };
  job.workers_join();
  std::vector<std::thread> threads;
  int worker = 0;
  try {
    for (; worker < job.workers(); ++worker) {
      threads.emplace_back([&, worker] {
        Status done = without_exceptions("in a worker", [&] { return run_steps(worker); });
        Status left = job.worker_leaves();
        if (done.ok()) done = std::move(left);
        if (!done.ok()) steps.fail(std::move(done));
      });
    }
  } catch (const std::exception& error) {
    steps.fail({StatusCode::kResource, fmt::format("no thread for each worker: {}", error.what())});
    for (; worker < job.workers(); ++worker) (void)job.worker_leaves();
  }
  for (std::thread& thread : threads) thread.join();
  return steps.failed();
}

Status Cluster::run_trainer(int id, const Steps& feeds, NamedValues& fetched, NamedValues& gathered,
                            TrainerStats& stats) {
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> job, open_one_trainer(id));
  if (DumpOptions dump; !job->add_dumps(dump).ok())
    return Unimplemented("--cluster: fleet_opt.dump_fields and dump_param of trainers");
  if (options_.keeps_stats) job->keep_stats(nullptr);
  if (job->workers() > 1) {
    MILLRACE_RETURN_IF_ERROR(train_side_by_side(id, *job, feeds, fetched));
    stats = job->stats();
  } else {
    MILLRACE_RETURN_IF_ERROR(train(id, *job, feeds, fetched, stats));
  }
  if (job->gpu() != nullptr)
    options_.trainer.log(LogLevel::kInfo, fmt::format("trainer {}: {}", id, job->gpu()->summary()));
  if (stop_.stopped()) return job->finish({});
  Trainer::Ending ending = options_.ending;
  ending.gather = id == 0 && options_.gathers ? &gathered : nullptr;
  return job->finish(ending);
}

StatusOr<ClusterResult> Cluster::run() {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<Steps> feeds, read_feeds_of_all(options_));
  MILLRACE_RETURN_IF_ERROR(open_servers());
  const size_t servers = servers_.size();
  const auto trainers = static_cast<size_t>(options_.folder.trainers);
  std::vector<Status> results(servers + trainers);
  std::vector<NamedValues> fetched(trainers);
  ClusterResult out;
  out.stats.resize(trainers);
  std::vector<std::thread> threads;
  Status started;
  try {
    for (size_t i = 0; i < servers; ++i) {
      threads.emplace_back([&, i] {
        results[i] = without_exceptions("in a server", [&] { return servers_[i]->serve(); });
        if (!results[i].ok()) stop_servers();
      });
    }
    for (size_t t = 0; t < trainers; ++t) {
      threads.emplace_back([&, t] {
        Status& result = results[servers + t];
        result = without_exceptions("in a trainer", [&] {
          return run_trainer(static_cast<int>(t), feeds[t], fetched[t], out.gathered, out.stats[t]);
        });
        // otherwise the others would wait for this one
        if (!result.ok()) stop_servers();
      });
    }
  } catch (const std::exception& error) {
    started = Status(StatusCode::kResource,
                     fmt::format("no thread for each server and trainer: {}", error.what()));
    stop_servers();
  }
  for (std::thread& thread : threads) thread.join();
  MILLRACE_RETURN_IF_ERROR(std::move(started));
  MILLRACE_RETURN_IF_ERROR(first_cause(results));
  out.stopped = stop_.stopped();
  for (NamedValues& values : fetched) out.fetched.merge(values);
  return out;
}

}  // namespace

StatusOr<ClusterResult> run_cluster(const ClusterOptions& options) {
  return Cluster(options).run();
}

}  // namespace millrace::jobs
