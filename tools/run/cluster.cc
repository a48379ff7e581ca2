#include "tools/run/cluster.h"

#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "io/npz.h"
#include "jobs/ps/cluster.h"
#include "jobs/stats/job_report.h"
#include "tools/common/signal_watch.h"
#include "tools/run/gpu.h"
#include "tools/run/outputs.h"
#include "tools/run/parallel.h"
#include "tools/run/progress.h"
#include "tools/run/roles.h"

namespace millrace::tools {
namespace {

StatusOr<jobs::ClusterOptions> cluster_options(const Tool& tool, const RunOptions& options) {
  PsFlags flags = options.ps;
  flags.silence_timeout_ms = 0;  // trainers in this process cannot be lost
  flags.kill_point.clear();      // each role has its own
  jobs::ClusterOptions out;
  out.params = options.params;
  out.steps_file = options.feed_steps;
  out.steps = options.steps;
  out.fetches = options.fetches;
  out.threads = tool.common().threads;
  MILLRACE_ASSIGN_OR_RETURN(out.trainer, trainer_settings(tool, flags));
  out.trainer.optimize = options.optimize;
  out.trainer.files_root = options.allow_dir;
  out.trainer.workers = options.worker_threads;
  if (wants_gpu(options)) {
    MILLRACE_ASSIGN_OR_RETURN(const int devices, device_count(options));
    if (devices > 1)
      return Unimplemented("--cluster with several devices, found --devices {}", options.devices);
    out.trainer.device = options.devices;
  } else if (tool.differs("--devices")) {
    tool.log(LogLevel::kWarning,
             "--devices has no effect: trainers of --cluster have one CPU device each");
  }
  MILLRACE_ASSIGN_OR_RETURN(out.server, server_settings(tool, flags, options.allow_dir));
  out.kill_point = options.ps.kill_point;
  out.ending = ending_of(tool, options);
  out.gathers = !options.save_persistables.empty();
  out.keeps_stats = !options.ps.report.empty();
  return out;
}

Status write_results(Tool& tool, const RunOptions& options, const jobs::ClusterResult& result) {
  if (!options.ps.report.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string page,
                              jobs::make_job_report(options.ps.transpiled, result.stats));
    MILLRACE_RETURN_IF_ERROR(tool.write_file(options.ps.report, page));
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::npz_bytes(result.fetched));
  if (!tool.common().output.empty()) MILLRACE_RETURN_IF_ERROR(tool.write_output(bytes));
  if (options.save_persistables.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const std::string saved, io::npz_bytes(result.gathered));
  return tool.write_file(options.save_persistables, saved);
}

}  // namespace

StatusOr<int> run_cluster(Tool& tool, const RunOptions& options) {
  if (options.ps.transpiled.empty()) {
    return Status(StatusCode::kUsage,
                  "--cluster: expected the folder of the transpiled job (--transpiled)");
  }
  MILLRACE_RETURN_IF_ERROR(check_output_files(tool, options));
  MILLRACE_RETURN_IF_ERROR(check_saved_values(tool, options, nullptr));
  MILLRACE_ASSIGN_OR_RETURN(jobs::JobFolder folder, jobs::open_job_folder(options.ps.transpiled));
  SignalWatch watch;  // must be created before other threads
  watch.start({});
  MILLRACE_ASSIGN_OR_RETURN(jobs::ClusterOptions how, cluster_options(tool, options));
  how.folder = std::move(folder);
  how.stopped = [&watch]() -> bool { return watch.stopped(); };
  const std::optional<ProgressMode> mode = progress_mode(options.progress);
  Progress progress(mode.value_or(ProgressMode::kNever));
  if (mode && !tool.common().quiet) how.progress = &progress;
  MILLRACE_ASSIGN_OR_RETURN(const jobs::ClusterResult result, jobs::run_cluster(how));
  if (result.stopped) {
    tool.log(LogLevel::kWarning, fmt::format("stopped by signal {}", watch.seen()));
    return watch.exit_code();
  }
  tool.log(LogLevel::kInfo, jobs::job_summary(result.stats));
  MILLRACE_RETURN_IF_ERROR(write_results(tool, options, result));
  return kDone;
}

}  // namespace millrace::tools
