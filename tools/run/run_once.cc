#include "tools/run/run_once.h"

#include <optional>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "io/npz.h"
#include "jobs/data/check_against.h"
#include "jobs/data/divided_steps.h"
#include "jobs/data/feeder.h"
#include "jobs/run/run_steps.h"
#include "jobs/run/save_results.h"
#include "jobs/run/session.h"
#include "jobs/run/step_records.h"
#include "jobs/run/stop_together.h"
#include "jobs/stats/fetches_line.h"
#include "jobs/stats/loss_curve.h"
#include "tools/run/gpu.h"
#include "tools/run/outputs.h"
#include "tools/run/parallel.h"
#include "tools/run/progress.h"
#include "tools/run/session_options.h"

namespace millrace::tools {
namespace {

using executor::NamedValues;
using jobs::Session;

void print_results(const NamedValues& results, std::string& out) {
  for (const auto& [name, value] : results) {
    out += fmt::format("{}: {}\n", name, describe(value));
    const auto* const tensor = value.get_if<Tensor>();
    if (tensor == nullptr || !tensor->initialized()) continue;
    const std::string elements = jobs::first_elements(*tensor, 8);
    if (!elements.empty() || tensor->numel() == 0) out += fmt::format("  [{}]\n", elements);
  }
}

Status write_outcome(Tool& tool, const RunOptions& options, const Session& session,
                     const executor::Runtime& runtime, const jobs::StepsResult& outcome,
                     const std::vector<std::string>& fetches) {
  if (!options.output.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::npz_bytes(outcome.results));
    MILLRACE_RETURN_IF_ERROR(tool.write_file(options.output, bytes));
  } else if (!options.print_plan) {
    std::string text;
    print_results(outcome.results, text);
    MILLRACE_RETURN_IF_ERROR(tool.write_file("", text));
  }
  if (!options.curve.empty()) {
    if (outcome.losses.empty())
      return {StatusCode::kUsage, "--curve: the first var of --fetch is not a single number"};
    MILLRACE_RETURN_IF_ERROR(
        tool.write_file(options.curve, jobs::loss_curve_svg(fetches.front(), outcome.losses)));
  }
  jobs::SaveOptions saved;
  saved.params = options.save_params;
  saved.model = options.save_model;
  saved.model_program = options.model_program;
  saved.params_filename = options.params_filename;
  saved.model_feeds = options.model_feeds;
  saved.model_fetches = options.model_fetches;
  saved.replace = tool.common().force ? Replace::kYes : Replace::kNo;
  saved.reading.max_bytes = tool.common().max_model_bytes;
  MILLRACE_RETURN_IF_ERROR(jobs::save_results(saved, session, runtime));
  if (options.save_persistables.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(
      const std::string bytes,
      jobs::persistables_npz(session, options.parallel.persistables_of == "all"));
  return tool.write_file(options.save_persistables, bytes);
}

// Exit code of --check-against; the lines of the comparison go to stderr.
StatusOr<int> check_results(const Tool& tool, const RunOptions& options,
                            const jobs::StepsResult& outcome) {
  if (options.check_against.empty()) return kDone;
  MILLRACE_ASSIGN_OR_RETURN(const jobs::CheckResult check,
                            jobs::check_against_file(outcome.results, options.check_against,
                                                     {options.rtol, options.atol}));
  llvm::SmallVector<llvm::StringRef, 8> lines;
  llvm::StringRef(check.text).split(lines, '\n', -1, false);
  for (const llvm::StringRef line : lines)
    tool.log(check.same ? LogLevel::kInfo : LogLevel::kError, std::string_view(line));
  return check.same ? kDone : kAnswerIsNo;
}

// The steps to run: their feeds, opened for this rank.
StatusOr<jobs::Feeder> open_feeder(const Tool& tool, const RunOptions& options,
                                   const Session& session, const LogSink& log) {
  MILLRACE_ASSIGN_OR_RETURN(jobs::FeedOptions feed, feed_options(tool, options));
  MILLRACE_RETURN_IF_ERROR(divide_examples(
      tool, options, session.rank, session.ranks == nullptr ? 1 : session.ranks->size(), feed));
  MILLRACE_ASSIGN_OR_RETURN(jobs::Feeder feeder, jobs::Feeder::open(feed, session.program()));
  if (feed.divide != jobs::Divide::kNone && session.ranks != nullptr)
    MILLRACE_RETURN_IF_ERROR(jobs::agree_on_steps(feed, *session.ranks, feeder, log));
  return feeder;
}

}  // namespace

StatusOr<int> run_once(Tool& tool, const RunOptions& options,
                       const std::shared_ptr<const executor::Runtime>& runtime,
                       const SignalWatch& watch) {
  const std::optional<ProgressMode> mode = progress_mode(options.progress);
  if (!mode) {
    return Status(
        StatusCode::kUsage,
        fmt::format("--progress: expected auto, never or json, found '{}'", options.progress));
  }
  if (options.print_plan && options.output == "-")
    return Status(StatusCode::kUsage, "--print-plan and -o - both write to stdout");
  if (options.save_every > 0 && options.checkpoint_dir.empty())
    return Status(StatusCode::kUsage,
                  "--save-every: expected --checkpoint-dir with the folder of the checkpoints");
  if (options.print_plan && options.worker_threads > 1)
    return Unimplemented("--print-plan with --worker-threads above 1");
  MILLRACE_RETURN_IF_ERROR(check_output_files(tool, options));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::SessionOptions how, session_options(tool, options));
  MILLRACE_ASSIGN_OR_RETURN(Session session, jobs::open_session(how, runtime));
  MILLRACE_RETURN_IF_ERROR(check_saved_values(tool, options, &session.program()));
  MILLRACE_ASSIGN_OR_RETURN(
      const auto records,
      jobs::StepRecords::start({options.check_nan, !options.profile.empty(), options.op_profile},
                               session));
  MILLRACE_ASSIGN_OR_RETURN(jobs::Feeder feeder, open_feeder(tool, options, session, how.log));
  const std::vector<std::string> fetches = jobs::wanted_fetches(options.fetches, session);
  Progress progress(tool.common().quiet ? ProgressMode::kNever : *mode);
  jobs::StopTogether stop([&watch] { return watch.seen(); }, session.ranks);
  jobs::StepsOptions steps;
  steps.fetches = fetches;
  steps.dump = dump_options(tool, options, session.rank);
  steps.print_period = options.print_period;
  steps.workers = options.worker_threads;
  steps.checkpoints = how.checkpoints;
  steps.observed = records->observes();
  steps.progress = &progress;
  steps.log = how.log;
  MILLRACE_ASSIGN_OR_RETURN(const jobs::StepsResult outcome,
                            jobs::run_steps(session, feeder, steps, stop));
  if (stop.signal() != 0) {
    tool.log(LogLevel::kWarning, fmt::format("stopped by signal {}", stop.signal()));
    return SignalWatch::exit_code_of(stop.signal());
  }
  for (const std::string& line : gpu_summary(session)) tool.log(LogLevel::kInfo, line);
  if (options.print_plan)
    MILLRACE_RETURN_IF_ERROR(tool.write_file("", session.parallel == nullptr
                                                     ? session.prepared->plan_text()
                                                     : session.parallel->plan_text()));
  if (!options.profile.empty())
    MILLRACE_RETURN_IF_ERROR(tool.write_file(options.profile, records->chrome_json()));
  for (const std::string& line : records->lines()) tool.log(LogLevel::kInfo, line);
  MILLRACE_RETURN_IF_ERROR(write_outcome(tool, options, session, *runtime, outcome, fetches));
  MILLRACE_RETURN_IF_ERROR(run_with_shared_vars(tool, options, runtime, session));
  return check_results(tool, options, outcome);
}

}  // namespace millrace::tools
