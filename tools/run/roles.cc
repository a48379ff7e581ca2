#include "tools/run/roles.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "executor/feed_values.h"
#include "fleet/launch/job_environment.h"
#include "framework/base/errors.h"
#include "io/npz.h"
#include "jobs/config/slices_file.h"
#include "jobs/data/feeder.h"
#include "jobs/ps/trainer.h"
#include "jobs/stats/step_facts.h"
#include "ps/transport/tracing.h"
#include "tools/common/signal_watch.h"
#include "tools/ps/metrics_page.h"
#include "tools/ps/run_server.h"
#include "tools/run/parallel.h"
#include "tools/run/progress.h"

namespace millrace::tools {
namespace {

using executor::NamedValues;
using jobs::Trainer;

// Completes the job at the servers, after all pending sends. A trainer that received a stop signal
// leaves the job instead, which continues without it, and saves nothing.
Status leave(Trainer& job, const Trainer::Ending& ending, const SignalWatch& watch) {
  return job.finish(watch.stopped() ? Trainer::Ending() : ending);
}

// Trains the steps starting at `first`, until a signal arrives, and leaves the job.
Status train(Tool& tool, const RunOptions& options, Trainer& job, jobs::Feeder& feeder,
             int64_t begin, NamedValues& results, const Trainer::Ending& ending,
             const SignalWatch& watch) {
  const std::optional<ProgressMode> mode = progress_mode(options.progress);
  if (!mode) return Status(StatusCode::kUsage, "--progress: expected auto, never or json");
  Progress progress(tool.common().quiet ? ProgressMode::kNever : *mode);
  jobs::ProgressState state;
  state.steps = feeder.steps();
  state.epochs = feeder.epochs();
  const bool prefixed = !feeder.has_data();
  NamedValues values;
  if (begin > 0) MILLRACE_RETURN_IF_ERROR(feeder.go_to(begin));
  for (int64_t step = begin; !watch.stopped() && !feeder.ends_at(step); ++step) {
    MILLRACE_ASSIGN_OR_RETURN(const NamedValues* const feeds, feeder.feeds(step));
    if (feeds == nullptr) break;
    MILLRACE_RETURN_IF_ERROR(job.step(step, *feeds, options.fetches, values));
    state.step = step + 1;
    state.epoch = feeder.epoch(step);
    state.examples = feeder.examples();
    const auto first =
        options.fetches.empty() ? values.end() : values.find(options.fetches.front());
    state.loss = first == values.end() ? std::nullopt : jobs::loss_of(first->second);
    progress.update(state);
    if (!prefixed) continue;
    for (auto& [name, value] : values)
      results[fmt::format("step{}/", step) + name] = std::move(value);
  }
  if (!prefixed) results = std::move(values);
  if (feeder.steps() != 1) progress.finish(state);
  if (feeder.waited_s() > 0)
    tool.log(LogLevel::kInfo, fmt::format("steps waited {:.3f} s for examples", feeder.waited_s()));
  return leave(job, ending, watch);
}

// State that the workers of a trainer share.
struct Side {
  std::mutex mutex;
  int64_t next = 0;  ///< step that the next worker runs
  bool ended = false;
  Status failure;
  jobs::ProgressState state;
};

// Runs steps in one worker until there are no more, one has failed, or a signal has arrived.
Status work(int worker, const RunOptions& options, Trainer& job, jobs::Feeder& feeder, Side& side,
            Progress& progress, NamedValues& results, const SignalWatch& watch) {
  const bool prefixed = !feeder.has_data();
  NamedValues feeds;
  NamedValues values;
  while (true) {
    int64_t step = 0;
    {
      const std::lock_guard lock(side.mutex);
      if (side.ended || watch.stopped() || feeder.ends_at(side.next)) return Ok();
      MILLRACE_ASSIGN_OR_RETURN(const NamedValues* const given, feeder.feeds(side.next));
      side.ended = given == nullptr;
      if (side.ended) return Ok();
      step = side.next++;
      // the feeder reuses its memory for the next worker
      for (const auto& [name, value] : *given)
        MILLRACE_RETURN_IF_ERROR(executor::copy_value(value, feeds[name]));
    }
    MILLRACE_RETURN_IF_ERROR(job.worker_step(worker, step, feeds, options.fetches, values));
    const std::lock_guard lock(side.mutex);
    side.state.step = std::max(side.state.step, step + 1);
    side.state.epoch = feeder.epoch(step);
    side.state.examples = feeder.examples();
    const auto first =
        options.fetches.empty() ? values.end() : values.find(options.fetches.front());
    side.state.loss = first == values.end() ? std::nullopt : jobs::loss_of(first->second);
    progress.update(side.state);
    for (auto& [name, value] : values) {
      Value& to = results[prefixed ? fmt::format("step{}/", step) + name : name];
      MILLRACE_RETURN_IF_ERROR(executor::copy_value(value, to));
    }
  }
}

// Like train(), with several threads; each takes the next batch when it has finished one.
Status train_side_by_side(Tool& tool, const RunOptions& options, Trainer& job, jobs::Feeder& feeder,
                          int64_t begin, NamedValues& results, const Trainer::Ending& ending,
                          const SignalWatch& watch) {
  const std::optional<ProgressMode> mode = progress_mode(options.progress);
  if (!mode) return Status(StatusCode::kUsage, "--progress: expected auto, never or json");
  Progress progress(tool.common().quiet ? ProgressMode::kNever : *mode);
  Side side;
  side.next = begin;
  side.state.steps = feeder.steps();
  side.state.epochs = feeder.epochs();
  if (begin > 0) MILLRACE_RETURN_IF_ERROR(feeder.go_to(begin));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(job.workers()));
  for (int worker = 0; worker < job.workers(); ++worker) {
    threads.emplace_back([&, worker] {
      Status status = work(worker, options, job, feeder, side, progress, results, watch);
      // so that no worker waits at a barrier for one that has left
      if (const Status left = job.worker_leaves(); status.ok()) status = left;
      const std::lock_guard lock(side.mutex);
      side.ended = side.ended || !status.ok();
      if (side.failure.ok()) side.failure = std::move(status);
    });
  }
  for (std::thread& thread : threads) thread.join();
  MILLRACE_RETURN_IF_ERROR(std::move(side.failure));
  if (feeder.steps() != 1) progress.finish(side.state);
  return leave(job, ending, watch);
}

// Goes back each time a server restarts at an older step than this trainer's.
StatusOr<int64_t> go_back(const Tool& tool, Trainer& job, int trainer) {
  while (true) {
    StatusOr<int64_t> step = job.go_back();
    if (step.ok())
      tool.log(LogLevel::kWarning, fmt::format("trainer {} goes back to step {}", trainer, *step));
    if (step.ok() || !job.must_go_back()) return step;
  }
}

Status train_to_the_end(Tool& tool, const RunOptions& options, Trainer& job, NamedValues& results,
                        const Trainer::Ending& ending, const SignalWatch& watch) {
  MILLRACE_ASSIGN_OR_RETURN(const jobs::FeedOptions feed, feed_options(tool, options));
  MILLRACE_ASSIGN_OR_RETURN(jobs::Feeder feeder, jobs::Feeder::open(feed, job.program()));
  for (int64_t first = job.first_step();;) {
    Status status = (job.workers() > 1 ? train_side_by_side : train)(tool, options, job, feeder,
                                                                     first, results, ending, watch);
    if (status.ok() || watch.stopped() || !job.must_go_back()) return status;
    tool.log(LogLevel::kWarning, status.message());
    MILLRACE_ASSIGN_OR_RETURN(first, go_back(tool, job, options.ps.trainer_id));
  }
}

// A signal that arrives while the trainer waits for its servers ends the process, unless the
// trainer connects shortly after; then it can leave the job in the regular way.
void end_unless_open(const Tool& tool, const SignalWatch& watch,
                     const std::shared_future<void>& open) {
  constexpr std::chrono::seconds kPatience(2);
  if (open.wait_for(kPatience) == std::future_status::ready) return;
  tool.log(LogLevel::kWarning,
           fmt::format("stopped by signal {} while it joined the job", watch.seen()));
  std::_Exit(watch.exit_code());
}

StatusOr<int> run_trainer(Tool& tool, const RunOptions& options) {
  if (options.program.empty())
    return Status(StatusCode::kUsage,
                  "--role trainer: expected the program of the trainer (--program), or the folder "
                  "of the job (--transpiled)");
  SignalWatch watch;  // must be created before other threads
  std::promise<void> opened;
  watch.start(
      [&tool, &watch, open = opened.get_future().share()] { end_unless_open(tool, watch, open); });
  ps::Metrics metrics;
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<ps::MetricsExposer> exposer,
                            show_metrics(options.ps.metrics, metrics));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::ConnectionOptions connection,
                            connection_options(options.ps));
  MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<ps::Transport> transport,
                            jobs::open_transport(connection, tool.log_sink()));
  ps::CallTrace trace;
  const bool traces = !options.profile.empty();
  if (traces) transport = ps::make_tracing_transport(std::move(transport), trace);
  MILLRACE_ASSIGN_OR_RETURN(Trainer::Settings settings, trainer_settings(tool, options.ps));
  settings.optimize = options.optimize;
  settings.files_root = options.allow_dir;
  settings.workers = options.worker_threads;
  // CPU_NUM alone, without --devices, is a setting of the communicator
  int devices = 1;
  if (options.devices != "cpu") {
    MILLRACE_ASSIGN_OR_RETURN(devices, device_count(options));
  }
  if (wants_parallel(options, devices)) {
    if (options.parallel.feed_mode != "split" || !options.parallel.merge_fetches)
      return Unimplemented("--role trainer: separate feeds or fetches per device");
    settings.devices = [&tool, &options, devices](const Program& program) {
      return parallel_options(tool, options, devices, program);
    };
  }
  const Trainer::Files files{options.program, options.startup,
                             jobs::find_slices(options.ps.slices, options.program), options.params};
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> job,
                            jobs::open_trainer(files, settings, transport));
  if (traces || exposer != nullptr || !options.ps.stats.empty())
    job->keep_stats(traces ? &trace : nullptr);
  if (exposer != nullptr) job->publish_to(metrics);
  opened.set_value();
  metrics.health().ready = true;
  NamedValues results;
  NamedValues gathered;
  const bool gathers = !options.save_persistables.empty();
  Trainer::Ending ending = ending_of(tool, options);
  if (gathers) ending.gather = &gathered;
  const Status trained = train_to_the_end(tool, options, *job, results, ending, watch);
  metrics.health().ready = false;
  if (traces) {
    // write the trace also of a failed job, where it is most useful
    MILLRACE_RETURN_IF_ERROR(tool.write_file(
        options.profile, trace.chrome_json(fmt::format("trainer {}", options.ps.trainer_id))));
  }
  if (watch.seen() != 0) {
    // servers that received the signal as well may have stopped earlier
    if (!trained.ok()) tool.log(LogLevel::kWarning, trained.to_string());
    tool.log(LogLevel::kWarning, fmt::format("stopped by signal {}", watch.seen()));
    return watch.exit_code();
  }
  MILLRACE_RETURN_IF_ERROR(trained);
  if (!options.ps.stats.empty())
    MILLRACE_RETURN_IF_ERROR(tool.write_file(options.ps.stats, jobs::stats_json(job->stats())));
  MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::npz_bytes(results));
  if (!tool.common().output.empty()) MILLRACE_RETURN_IF_ERROR(tool.write_output(bytes));
  if (gathers) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string saved, io::npz_bytes(gathered));
    MILLRACE_RETURN_IF_ERROR(tool.write_file(options.save_persistables, saved));
  }
  return kDone;
}

// The role and index of this process in a job.
struct Part {
  std::string role;  // trainer or pserver
  int index = 0;
};

// Determined by the flags, or with --role auto by the environment that launchers set.
StatusOr<Part> part_of(const Tool& tool, const RunOptions& options) {
  Part part{options.ps.role, options.ps.trainer_id};
  if (options.ps.role != "auto") return part;
  MILLRACE_ASSIGN_OR_RETURN(const fleet::JobEnvironment job,
                            fleet::read_job_environment(fleet::process_environment()));
  if (job.role != "TRAINER" && job.role != "PSERVER") {
    return Status(StatusCode::kUsage,
                  fmt::format("--role auto: TRAINING_ROLE in the environment is '{}', expected "
                              "TRAINER or PSERVER",
                              job.role));
  }
  part.role = job.role == "TRAINER" ? "trainer" : "pserver";
  if (!tool.given("--trainer-id")) part.index = job.rank;
  return part;
}

// Trainers and servers that share one command line write separate profiles.
void name_profile_of_role(RunOptions& options, const Part& part) {
  constexpr std::string_view kRole = "{role}";
  const size_t at = options.profile.find(kRole);
  if (at != std::string::npos) options.profile.replace(at, kRole.size(), part.role);
  if (part.role == "trainer") return;
  options.ps.trace = options.profile;
  options.ps.trace_name = std::to_string(part.index);
}

// With --transpiled, uses the programs of this role in that folder.
Status name_programs(RunOptions& options, const Part& part) {
  if (options.ps.transpiled.empty() || !options.program.empty()) return Ok();
  if (options.ps.role == "pserver")
    return {StatusCode::kUsage, "--role pserver: expected the program of the server (--program)"};
  const std::string folder = fmt::format("{}/{}_{}", options.ps.transpiled, part.role, part.index);
  options.program = folder + "/__model__";
  if (options.startup.empty()) options.startup = folder + "/__startup__";
  return Ok();
}

}  // namespace

jobs::Trainer::Ending ending_of(const Tool& tool, const RunOptions& options) {
  jobs::Trainer::Ending ending;
  ending.params = options.save_params;
  ending.save_programs = options.save_programs;
  ending.model = options.save_model;
  ending.model_program = options.model_program;
  ending.model_feeds = options.model_feeds;
  ending.model_fetches = options.model_fetches;
  ending.replace = tool.common().force ? Replace::kYes : Replace::kNo;
  return ending;
}

StatusOr<int> run_role(Tool& tool, const RunOptions& given) {
  MILLRACE_ASSIGN_OR_RETURN(const Part part, part_of(tool, given));
  RunOptions options = given;
  fill_in_rank(options, part.index);
  name_profile_of_role(options, part);
  MILLRACE_RETURN_IF_ERROR(name_programs(options, part));
  if (part.role == "trainer") {
    options.ps.trainer_id = part.index;
    return run_trainer(tool, options);
  }
  return run_server(tool,
                    {options.program, options.startup,
                     jobs::find_slices(options.ps.slices, options.program), options.params},
                    options.ps, options.allow_dir);
}

}  // namespace millrace::tools
