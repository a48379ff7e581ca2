#include "tools/run/run_once.h"

#include <optional>

#include <fmt/ranges.h>
#include <llvm/ADT/StringRef.h>

#include "executor/check_nan.h"
#include "executor/inference_model.h"
#include "executor/parallel/timeline.h"
#include "executor/trace.h"
#include "framework/base/errors.h"
#include "io/model_folder.h"
#include "io/npy.h"
#include "jobs/data/check_against.h"
#include "jobs/data/feeder.h"
#include "jobs/run/divided_steps.h"
#include "jobs/run/run_steps.h"
#include "jobs/run/session.h"
#include "jobs/run/stop_together.h"
#include "jobs/stats/loss_curve.h"
#include "tools/common/program_options.h"
#include "tools/run/gpu.h"
#include "tools/run/parallel.h"
#include "tools/run/progress.h"
#include "tools/run/ranks.h"
#include "tools/run/session_options.h"

namespace millrace::tools {
namespace {

using executor::NamedValues;
using jobs::Session;

void print_results(const NamedValues& results, std::string& out) {
  for (const auto& [name, value] : results) {
    out += fmt::format("{}: {}\n", name, describe(value));
    const auto* const tensor = value.get_if<Tensor>();
    if (tensor == nullptr || tensor->dtype() != DType::kFloat32) continue;
    const auto shown = tensor->values<float>().first(std::min<size_t>(tensor->numel(), 8));
    out += fmt::format("  [{}{}]\n", fmt::join(shown, ", "),
                       static_cast<size_t>(tensor->numel()) > shown.size() ? ", ..." : "");
  }
}

// Writes the inference model for --save-model, with the values of this run.
Status save_model(const Tool& tool, const RunOptions& options, const Session& session,
                  const executor::Runtime& runtime) {
  std::unique_ptr<Program> named;
  if (!options.model_program.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(named, read_program(tool, options.model_program));
  }
  executor::SaveModelOptions how;
  how.params_filename = options.params_filename;
  how.replace = tool.common().force ? Replace::kYes : Replace::kNo;
  return executor::save_inference_model(
      options.save_model, named == nullptr ? session.program() : *named, *runtime.ops,
      *session.scope, options.model_feeds, options.model_fetches, how);
}

Status write_outcome(Tool& tool, const RunOptions& options, const Session& session,
                     const executor::Runtime& runtime, const jobs::StepsResult& outcome,
                     const std::vector<std::string>& fetches) {
  if (!tool.common().output.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::npz_bytes(outcome.results));
    MILLRACE_RETURN_IF_ERROR(tool.write_file(of_rank(tool.common().output, session.rank), bytes));
  } else {
    std::string text;
    print_results(outcome.results, text);
    MILLRACE_RETURN_IF_ERROR(tool.write_output(text));
  }
  if (!options.curve.empty()) {
    if (outcome.losses.empty())
      return {StatusCode::kUsage, "--curve: the first var of --fetch is not a single number"};
    MILLRACE_RETURN_IF_ERROR(
        tool.write_file(options.curve, jobs::loss_curve_svg(fetches.front(), outcome.losses)));
  }
  if (!options.save_params.empty()) {
    const Replace replace = tool.common().force ? Replace::kYes : Replace::kNo;
    MILLRACE_RETURN_IF_ERROR(io::save_parameters(options.save_params, session.program(),
                                                 *session.scope, {.replace = replace}));
  }
  if (!options.save_model.empty())
    MILLRACE_RETURN_IF_ERROR(save_model(tool, options, session, runtime));
  if (!options.save_persistables.empty()) {
    const bool all = options.parallel.persistables_of == "all";
    MILLRACE_ASSIGN_OR_RETURN(const NamedValues saved, all ? jobs::persistables_of_devices(session)
                                                           : jobs::persistables(session));
    MILLRACE_ASSIGN_OR_RETURN(const std::string bytes, io::npz_bytes(saved));
    MILLRACE_RETURN_IF_ERROR(tool.write_file(options.save_persistables, bytes));
  }
  return Ok();
}

// Exit code of --check-against; the lines of the comparison go to stderr.
StatusOr<int> check_results(const Tool& tool, const RunOptions& options,
                            const jobs::StepsResult& outcome) {
  if (options.check_against.empty()) return kDone;
  NamedValues expected;
  if (llvm::StringRef(options.check_against).endswith(".npy")) {
    if (outcome.results.size() != 1) {
      return Status(StatusCode::kUsage,
                    fmt::format("--check-against: an npy has one result, found {} results",
                                outcome.results.size()));
    }
    MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, io::read_npy(options.check_against));
    expected[outcome.results.begin()->first].as<Tensor>() = std::move(tensor);
  } else {
    MILLRACE_ASSIGN_OR_RETURN(expected, io::read_values(options.check_against));
  }
  const jobs::CheckResult check =
      jobs::check_against(outcome.results, expected, {options.rtol, options.atol});
  llvm::SmallVector<llvm::StringRef, 8> lines;
  llvm::StringRef(check.text).split(lines, '\n', -1, false);
  for (const llvm::StringRef line : lines)
    tool.log(check.same ? LogLevel::kInfo : LogLevel::kError, std::string_view(line));
  return check.same ? kDone : kAnswerIsNo;
}

void log_lines_run_once(const Tool& tool, const std::string& text) {
  llvm::SmallVector<llvm::StringRef, 32> rows;
  llvm::StringRef(text).split(rows, '\n', -1, false);
  for (const llvm::StringRef row : rows) tool.log(LogLevel::kInfo, std::string_view(row));
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
  if (options.check_nan && (!options.profile.empty() || options.op_profile))
    return Status(StatusCode::kUsage, "expected only one of --check-nan and --profile");
  if (options.save_every > 0 && options.checkpoint_dir.empty())
    return Status(StatusCode::kUsage,
                  "--save-every: expected --checkpoint-dir with the folder of the checkpoints");
  MILLRACE_ASSIGN_OR_RETURN(const jobs::SessionOptions how, session_options(tool, options));
  MILLRACE_ASSIGN_OR_RETURN(Session session, jobs::open_session(how, runtime));
  if (options.op_profile && session.parallel != nullptr) {
    return Status(StatusCode::kUsage,
                  "--op-profile supports one device only; use --profile for several");
  }
  MILLRACE_ASSIGN_OR_RETURN(jobs::FeedOptions feed, feed_options(tool, options));
  MILLRACE_RETURN_IF_ERROR(divide_examples(
      tool, options, session.rank, session.ranks == nullptr ? 1 : session.ranks->size(), feed));
  MILLRACE_ASSIGN_OR_RETURN(jobs::Feeder feeder, jobs::Feeder::open(feed, session.program()));
  if (feed.divide != jobs::Divide::kNone && session.ranks != nullptr)
    MILLRACE_RETURN_IF_ERROR(jobs::agree_on_steps(feed, *session.ranks, feeder, how.log));
  const std::vector<std::string> fetches = jobs::wanted_fetches(options.fetches, session);
  executor::NanCheck nan_check;
  executor::Trace trace;
  const int devices = session.parallel == nullptr ? 0 : session.parallel->device_count();
  executor::Timeline timeline(devices);
  for (int d = 0; d < devices; ++d) {
    if (options.check_nan) session.parallel->observe(d, &nan_check);
    if (!options.profile.empty()) session.parallel->observe(d, &timeline.lane(d));
  }
  if (session.prepared != nullptr) {
    if (options.check_nan) session.prepared->observe(&nan_check);
    if (!options.profile.empty() || options.op_profile) session.prepared->observe(&trace);
  }
  Progress progress(tool.common().quiet ? ProgressMode::kNever : *mode);
  jobs::StopTogether stop([&watch] { return watch.seen(); }, session.ranks);
  jobs::StepsOptions steps;
  steps.fetches = fetches;
  steps.dump = dump_options(tool, options, session.rank);
  steps.print_period = options.print_period;
  steps.checkpoints = how.checkpoints;
  steps.observed = options.check_nan || !options.profile.empty() || options.op_profile;
  steps.progress = &progress;
  steps.log = how.log;
  MILLRACE_ASSIGN_OR_RETURN(const jobs::StepsResult outcome,
                            jobs::run_steps(session, feeder, steps, stop));
  if (stop.signal() != 0) {
    tool.log(LogLevel::kWarning, fmt::format("stopped by signal {}", stop.signal()));
    return SignalWatch::exit_code_of(stop.signal());
  }
  if (const std::string summary = gpu_summary(session); !summary.empty())
    tool.log(LogLevel::kInfo, summary);
  if (options.print_plan) {
    MILLRACE_RETURN_IF_ERROR(tool.write_file("-", session.parallel == nullptr
                                                      ? session.prepared->plan_text()
                                                      : session.parallel->plan_text()));
    return kDone;
  }
  if (!options.profile.empty() && session.parallel != nullptr) {
    MILLRACE_RETURN_IF_ERROR(tool.write_file(options.profile, timeline.chrome_json()));
    for (int d = 0; d < devices; ++d) {
      const executor::Timeline::Load load = timeline.load(d);
      tool.log(LogLevel::kInfo, fmt::format("device {}: {:.3f} ms in ops, {:.3f} ms in exchanges",
                                            d, load.total_ms, load.exchange_ms));
    }
  } else if (!options.profile.empty()) {
    MILLRACE_RETURN_IF_ERROR(tool.write_file(options.profile, trace.chrome_json()));
    log_lines_run_once(tool, trace.op_table());
  } else if (options.op_profile && session.prepared != nullptr) {
    log_lines_run_once(tool, trace.op_table());
  }
  MILLRACE_RETURN_IF_ERROR(write_outcome(tool, options, session, *runtime, outcome, fetches));
  MILLRACE_RETURN_IF_ERROR(run_with_shared_vars(tool, options, runtime, session));
  return check_results(tool, options, outcome);
}

}  // namespace millrace::tools
