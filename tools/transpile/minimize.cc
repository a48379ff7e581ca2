#include "tools/transpile/minimize.h"

#include "framework/base/errors.h"
#include "framework/read_program.h"
#include "jobs/config/minimize_config.h"
#include "jobs/distribute/made_program.h"
#include "ops/absent_gradients.h"
#include "ops/verify.h"
#include "tools/common/program_options.h"
#include "tools/transpile/run_passes.h"
#include "tools/transpile/write_below.h"
#include "transpiler/pass_manager.h"
#include "transpiler/passes/training.h"

namespace millrace::tools {

StatusOr<std::unique_ptr<Program>> read_checked_program(Tool& tool, const ops::OpRegistry& registry,
                                                        const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Program> program, read_program(tool, path));
  if (Status status = ops::check_program(registry, *program); !status.ok())
    return std::move(status).in_file(path);
  return program;
}

namespace minimize_parts {
namespace {

namespace tp = millrace::transpiler;

void warn_of(const Tool& tool, const std::vector<Status>& warnings) {
  for (const Status& warning : warnings) {
    const std::string text = warning.to_string();
    llvm::StringRef words = text;
    words.consume_front("error: ");
    tool.log(LogLevel::kWarning, std::string_view(words));
  }
}

std::vector<tp::TrainedLoss> losses_of(const jobs::MinimizeConfig& config) {
  std::vector<tp::TrainedLoss> losses;
  for (const jobs::MinimizeConfig::Loss& loss : config.losses)
    losses.push_back({loss.name, loss.options});
  return losses;
}

// Runs the pass and logs its warnings. Checks between passes run only where --print-after,
// --dump-dir or --timing asks for them, because the caller verifies the result.
Status run_pass(const Tool& tool, const TranspileOptions& flags, std::unique_ptr<tp::Pass> pass,
                Program& main, tp::PassContext& context) {
  const WatchedPasses watched(flags, context.registry);
  tp::PassManagerOptions options;
  if (WatchedPasses::wanted(flags)) {
    options = watched.options();
  } else {
    options.check_changes = false;
  }
  options.error_note = tp::ErrorNote::kNothing;
  Status status = tp::PassManager::of(std::move(pass)).run(main, context, options).status();
  for (const std::string& warning : context.remarks) tool.log(LogLevel::kWarning, warning);
  if (status.ok() && flags.timing) tool.log(LogLevel::kInfo, "\n" + watched.times());
  return status;
}

// \param scheduled_rate  receives the var of a learning rate that the trainer must update
Status append_training(const Tool& tool, const TranspileOptions& flags,
                       const ops::OpRegistry& registry, Program& main, Program& startup,
                       const jobs::MinimizeConfig& config, std::string& scheduled_rate) {
  tp::PassContext context(registry);
  tp::TrainingFacts facts;
  context.startup = &startup;
  context.job = &facts;
  MILLRACE_RETURN_IF_ERROR(run_pass(
      tool, flags, tp::minimize_pass(losses_of(config), config.name_scopes), main, context));
  if (!config.losses.empty() &&
      std::holds_alternative<SteppedRate>(config.losses.front().options.learning_rate))
    scheduled_rate = facts.learning_rates.front();
  return Ok();
}

Status check_flags(Tool& tool, const TranspileOptions& options) {
  if (tool.common().output.empty())
    return Status(StatusCode::kUsage, "-o FOLDER is required with --minimize");
  if (!options.backward_only && options.startup.empty()) {
    return Status(StatusCode::kUsage,
                  "--startup is required with --minimize: it initializes the optimizer state");
  }
  return Ok();
}

Status write(Tool& tool, const TranspileOptions& options, const std::string& folder,
             const std::string& name, const Program& program) {
  return write_below(tool, folder, name,
                     jobs::made_program_bytes(program, options.format == "text"));
}

// A misspelled member would leave a default in its place.
StatusOr<jobs::MinimizeConfig> read_config(const Tool& tool, const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(jobs::MinimizeConfig config, jobs::read_minimize_config(path));
  std::vector<Status> warnings;
  for (Status& each : config.unread) warnings.push_back(std::move(each).in_file(path));
  warn_of(tool, warnings);
  return config;
}

StatusOr<int> write_backward(Tool& tool, const TranspileOptions& options,
                             const ops::OpRegistry& registry) {
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> main,
                            read_checked_program(tool, registry, options.program));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::MinimizeConfig config, read_config(tool, options.minimize));
  tp::PassContext context(registry);
  if (Status status =
          run_pass(tool, options, tp::append_backward_pass(losses_of(config)), *main, context);
      !status.ok())
    return std::move(status).in_file(options.program);
  if (options.verify)
    MILLRACE_RETURN_IF_ERROR(jobs::check_made_program(registry, *main, "backward"));
  warn_of(tool, ops::lost_state_gradients(*main));
  MILLRACE_RETURN_IF_ERROR(write(tool, options, "backward", "__model__", *main));
  return kDone;
}

}  // namespace
}  // namespace minimize_parts

StatusOr<TrainingPrograms> make_training_programs(Tool& tool, const TranspileOptions& options,
                                                  const ops::OpRegistry& registry) {
  using namespace minimize_parts;
  MILLRACE_RETURN_IF_ERROR(check_flags(tool, options));
  TrainingPrograms out;
  MILLRACE_ASSIGN_OR_RETURN(out.main, read_checked_program(tool, registry, options.program));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::MinimizeConfig config, read_config(tool, options.minimize));
  if (!config.has_optimizers)
    return InvalidArgument(
               "'optimizer': expected a list with an optimizer for each loss, found none")
        .in_file(options.minimize);
  MILLRACE_ASSIGN_OR_RETURN(out.startup, read_checked_program(tool, registry, options.startup));
  if (Status status = append_training(tool, options, registry, *out.main, *out.startup, config,
                                      out.scheduled_rate);
      !status.ok())
    return std::move(status).in_file(options.program);
  if (!out.scheduled_rate.empty()) out.schedule = config.losses.front().schedule;
  if (options.verify) {
    MILLRACE_RETURN_IF_ERROR(jobs::check_made_program(registry, *out.main, "main"));
    MILLRACE_RETURN_IF_ERROR(jobs::check_made_program(registry, *out.startup, "startup"));
  }
  return out;
}

StatusOr<int> minimize(Tool& tool, const TranspileOptions& options) {
  using namespace minimize_parts;
  MILLRACE_RETURN_IF_ERROR(check_flags(tool, options));
  const auto registry = ops::standard_registry();
  if (options.backward_only) return write_backward(tool, options, *registry);
  MILLRACE_ASSIGN_OR_RETURN(const TrainingPrograms made,
                            make_training_programs(tool, options, *registry));
  warn_of(tool, ops::lost_state_gradients(*made.main));
  if (!made.scheduled_rate.empty())
    tool.log(
        LogLevel::kWarning,
        "the learning rate '" + made.scheduled_rate +
            "' keeps its initial value unless it is fed in every step: the schedule is stored only "
            "for jobs of --fleet");
  MILLRACE_RETURN_IF_ERROR(write(tool, options, "main", "__model__", *made.main));
  MILLRACE_RETURN_IF_ERROR(write(tool, options, "main", "__startup__", *made.startup));
  return kDone;
}

}  // namespace millrace::tools
