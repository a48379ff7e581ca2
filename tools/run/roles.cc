#include "tools/run/roles.h"

#include <chrono>
#include <cstdlib>
#include <future>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include "executor/gpu/gpu_ops.h"
#include "fleet/launch/job_environment.h"
#include "framework/base/errors.h"
#include "io/npz.h"
#include "jobs/config/slices_file.h"
#include "jobs/ps/train.h"
#include "ps/transport/tracing.h"
#include "tools/common/signal_watch.h"
#include "tools/ps/metrics_page.h"
#include "tools/ps/run_server.h"
#include "tools/run/gpu.h"
#include "tools/run/outputs.h"
#include "tools/run/parallel.h"
#include "tools/run/progress.h"

namespace millrace::tools {
namespace {

using executor::NamedValues;
using jobs::Trainer;

// Number of trainers as the job or the launcher states it; 0 if neither does.
StatusOr<int> known_trainers(const Trainer& job) {
  if (job.trainers() > 0) return job.trainers();
  MILLRACE_ASSIGN_OR_RETURN(const fleet::JobEnvironment launched,
                            fleet::read_job_environment(fleet::process_environment()));
  return launched.role == "TRAINER" ? launched.size : 0;
}

Status train(Tool& tool, const RunOptions& options, Trainer& job, NamedValues& results,
             const Trainer::Ending& ending, const SignalWatch& watch) {
  const std::optional<ProgressMode> mode = progress_mode(options.progress);
  if (!mode) return Status(StatusCode::kUsage, "--progress: expected auto, never or json");
  Progress progress(tool.common().quiet ? ProgressMode::kNever : *mode);
  jobs::TrainOptions how;
  MILLRACE_ASSIGN_OR_RETURN(how.feeds, feed_options(tool, options));
  MILLRACE_ASSIGN_OR_RETURN(const int trainers, known_trainers(job));
  MILLRACE_RETURN_IF_ERROR(
      divide_examples(tool, options, options.ps.trainer_id, trainers, how.feeds));
  how.fetches = options.fetches;
  how.dump = dump_options(tool, options, options.ps.trainer_id);
  how.print_period = options.print_period;
  how.stopped = [&watch]() -> bool { return watch.stopped(); };
  how.progress = &progress;
  how.log = tool.log_sink();
  return jobs::train(job, options.ps.trainer_id, how, ending, results);
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

// The transports of gradients between trainers are not encrypted.
Status check_encryption(const RunOptions& options) {
  const PsFlags& ps = options.ps;
  const bool encrypts = !ps.tls_dir.empty() || !ps.tls_ca.empty() || !ps.tls_cert.empty();
  if (!encrypts || options.ranks.engine == "shm") return Ok();
  return Unimplemented(
      "TLS between trainers, which average dense gradients by all-reduce; --engine shm keeps them "
      "on "
      "this machine");
}

// How this trainer exchanges dense gradients with the others, if the job needs it.
// \param used  set to true if it does
void add_ranks(const Tool& tool, const RunOptions& options, bool& used,
               Trainer::Settings& settings) {
  RankFlags flags = options.ranks;
  // like a call to the servers, unless stated
  if (!tool.given("--wait-ms")) flags.wait_ms = options.ps.deadline_ms;
  settings.ranks = [&options, &used, flags](
                       const std::vector<std::string>& endpoints, int trainer,
                       int trainers) -> StatusOr<std::shared_ptr<executor::Rings>> {
    used = true;
    MILLRACE_RETURN_IF_ERROR(check_encryption(options));
    return rings_of_trainer(flags, options.ps.job_key, endpoints, trainer, trainers);
  };
}

void warn_of_ranks(const Tool& tool) {
  for (const char* const flag :
       {"--endpoints", "--engine", "--rendezvous", "--wait-ms", "--join-ms"}) {
    if (tool.differs(flag))
      tool.log(
          LogLevel::kWarning,
          fmt::format("{} has no effect: the trainers of this job exchange no gradients", flag));
  }
}

StatusOr<int> run_trainer(Tool& tool, const RunOptions& options) {
  if (options.program.empty())
    return Status(StatusCode::kUsage,
                  "--role trainer: expected the program of the trainer (--program), or the folder "
                  "of the job (--transpiled)");
  MILLRACE_RETURN_IF_ERROR(check_output_files(tool, options));
  MILLRACE_RETURN_IF_ERROR(check_saved_values(tool, options, nullptr));
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
  RunOptions opened_devices = options;
  if (wants_parallel(options, devices)) {
    if (options.parallel.feed_mode != "split" || !options.parallel.merge_fetches)
      return Unimplemented("--role trainer: separate feeds or fetches per device");
    MILLRACE_ASSIGN_OR_RETURN(opened_devices.gpus, open_gpu_contexts(options));
    settings.devices = [&tool, &opened_devices, devices](const Program& program) {
      return parallel_options(tool, opened_devices, devices, program);
    };
  } else if (wants_gpu(options)) {
    settings.device = options.devices;
  }
  bool exchanges = false;
  add_ranks(tool, options, exchanges, settings);
  const Trainer::Files files{options.program, options.startup,
                             jobs::find_slices(options.ps.slices, options.program), options.params};
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> job,
                            jobs::open_trainer(files, settings, transport));
  if (!exchanges) warn_of_ranks(tool);
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
  const Status trained = train(tool, options, *job, results, ending, watch);
  if (job->gpu() != nullptr) tool.log(LogLevel::kInfo, job->gpu()->summary());
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
  if (!options.output.empty()) MILLRACE_RETURN_IF_ERROR(tool.write_file(options.output, bytes));
  if (gathers) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string saved, io::npz_bytes(gathered));
    MILLRACE_RETURN_IF_ERROR(tool.write_file(options.save_persistables, saved));
  }
  return kDone;
}

// The role and index of this process in a job.
struct Part {
  std::string role;  // trainer, pserver or heter
  int index = 0;
};

// TRAINING_ROLE in the environment, and the role.
constexpr std::pair<const char*, const char*> kLaunched[] = {
    {"TRAINER", "trainer"}, {"PSERVER", "pserver"}, {"HETER_TRAINER", "heter"}};

// Determined by the flags, or with --role auto by the environment that launchers set.
StatusOr<Part> part_of(const Tool& tool, const RunOptions& options) {
  Part part{options.ps.role, options.ps.trainer_id};
  if (part.role == "heter") part.index = options.ps.heter_id;
  if (options.ps.role != "auto") return part;
  MILLRACE_ASSIGN_OR_RETURN(const fleet::JobEnvironment job,
                            fleet::read_job_environment(fleet::process_environment()));
  const auto* const found =
      llvm::find_if(kLaunched, [&](const auto& role) { return job.role == role.first; });
  if (found == std::end(kLaunched)) {
    return Status(StatusCode::kUsage,
                  fmt::format("--role auto: TRAINING_ROLE in the environment is '{}', expected "
                              "TRAINER, PSERVER or HETER_TRAINER",
                              job.role));
  }
  part.role = found->second;
  const bool is_given = tool.given(part.role == "heter" ? "--heter-id" : "--trainer-id");
  if (part.role == "heter") part.index = options.ps.heter_id;
  if (!is_given) part.index = job.rank;
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
  fill_in_rank(options, part.index, tool.common().output);
  name_profile_of_role(options, part);
  MILLRACE_RETURN_IF_ERROR(name_programs(options, part));
  if (part.role == "trainer") {
    options.ps.trainer_id = part.index;
    return run_trainer(tool, options);
  }
  if (part.role == "heter" && wants_gpu(options))
    return Unimplemented("--devices {}: heter workers compute on the CPU", options.devices);
  if (part.role == "heter")
    return run_heter_worker(tool, {options.program, options.startup, "", ""}, options.ps,
                            part.index);
  return run_server(tool,
                    {options.program, options.startup,
                     jobs::find_slices(options.ps.slices, options.program), options.params},
                    options.ps, options.allow_dir);
}

}  // namespace millrace::tools
