#include "tools/transpile/minimize.h"

#include <filesystem>

#include "framework/base/errors.h"
#include "framework/read_program.h"
#include "jobs/config/minimize_config.h"
#include "ops/absent_gradients.h"
#include "ops/backward/append_backward.h"
#include "ops/minimize/error_clip.h"
#include "ops/minimize/minimize.h"
#include "ops/verify.h"
#include "tools/common/program_options.h"
#include "tools/transpile/program_form.h"

namespace millrace::tools {
namespace {

namespace fs = std::filesystem;

StatusOr<std::unique_ptr<Program>> read_checked(Tool& tool, const ops::OpRegistry& registry,
                                                const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Program> program, read_program(tool, path));
  if (Status status = ops::check_program(registry, *program); !status.ok())
    return std::move(status).in_file(path);
  return program;
}

void warn_of_minimize(const Tool& tool, const std::vector<Status>& warnings) {
  for (const Status& warning : warnings) {
    const std::string text = warning.to_string();
    llvm::StringRef words = text;
    words.consume_front("error: ");
    tool.log(LogLevel::kWarning, std::string_view(words));
  }
}

Status append_gradients(const Tool& tool, const ops::OpRegistry& registry, Program& program,
                        const jobs::MinimizeConfig& config) {
  int earlier_calls = 0;
  for (const jobs::MinimizeConfig::Loss& loss : config.losses) {
    MILLRACE_RETURN_IF_ERROR(ops::check_error_clips(loss.options.error_clips));
    ops::BackwardRequest request;
    request.loss = loss.name;
    request.parameters = loss.options.parameters;
    request.no_grad = loss.options.no_grad;
    request.earlier_calls = earlier_calls++;
    request.after_append = ops::clip_errors(loss.options.error_clips);
    std::vector<Status> warnings;
    request.warnings = &warnings;
    MILLRACE_RETURN_IF_ERROR(ops::append_backward(registry, program, request).status());
    warn_of_minimize(tool, warnings);
  }
  return Ok();
}

// \param scheduled_rate  receives the var of a learning rate that the trainer must update
Status append_training(const Tool& tool, const ops::OpRegistry& registry, Program& main,
                       Program& startup, const jobs::MinimizeConfig& config,
                       std::string& scheduled_rate) {
  ops::Builder builder(registry, main, startup);
  for (const auto& [prefix, openings] : config.name_scopes)
    builder.scopes().continue_after(prefix, openings);
  for (const jobs::MinimizeConfig::Loss& loss : config.losses) {
    MILLRACE_ASSIGN_OR_RETURN(const ops::MinimizeResult made,
                              ops::minimize(builder, loss.name, loss.options));
    warn_of_minimize(tool, made.warnings);
    if (&loss == &config.losses.front() &&
        std::holds_alternative<SteppedRate>(loss.options.learning_rate))
      scheduled_rate = made.learning_rate;
  }
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

Status write_minimize(Tool& tool, const TranspileOptions& options, const std::string& folder,
                      const std::string& name, const Program& program) {
  return write_below(tool, folder, name, serialize(program, options.format == "text"));
}

StatusOr<int> write_backward(Tool& tool, const TranspileOptions& options,
                             const ops::OpRegistry& registry) {
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> main,
                            read_checked(tool, registry, options.program));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::MinimizeConfig config,
                            jobs::read_minimize_config(options.minimize));
  if (Status status = append_gradients(tool, registry, *main, config); !status.ok())
    return std::move(status).in_file(options.program);
  if (options.verify) MILLRACE_RETURN_IF_ERROR(check_made_program(registry, *main, "backward"));
  warn_of_minimize(tool, ops::lost_state_gradients(*main));
  MILLRACE_RETURN_IF_ERROR(write_minimize(tool, options, "backward", "__model__", *main));
  return kDone;
}

}  // namespace

Status check_made_program(const ops::OpRegistry& registry, const Program& program,
                          const std::string& what) {
  Status status = ops::check_program(registry, program);
  if (status.ok()) return Ok();
  return Internal("generated a {} program that does not verify: {}", what, status.message())
      .at(status.location());
}

Status write_below(Tool& tool, const std::string& folder, const std::string& name,
                   const std::string& bytes) {
  const fs::path path = fs::path(tool.common().output) / folder;
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return IoError("cannot create folder '{}': {}", path.string(), error.message());
  return tool.write_file((path / name).string(), bytes);
}

StatusOr<TrainingPrograms> make_training_programs(Tool& tool, const TranspileOptions& options,
                                                  const ops::OpRegistry& registry) {
  MILLRACE_RETURN_IF_ERROR(check_flags(tool, options));
  TrainingPrograms out;
  MILLRACE_ASSIGN_OR_RETURN(out.main, read_checked(tool, registry, options.program));
  MILLRACE_ASSIGN_OR_RETURN(const jobs::MinimizeConfig config,
                            jobs::read_minimize_config(options.minimize));
  MILLRACE_ASSIGN_OR_RETURN(out.startup, read_checked(tool, registry, options.startup));
  if (Status status =
          append_training(tool, registry, *out.main, *out.startup, config, out.scheduled_rate);
      !status.ok())
    return std::move(status).in_file(options.program);
  if (!out.scheduled_rate.empty()) out.schedule = config.losses.front().schedule;
  if (options.verify) {
    MILLRACE_RETURN_IF_ERROR(check_made_program(registry, *out.main, "main"));
    MILLRACE_RETURN_IF_ERROR(check_made_program(registry, *out.startup, "startup"));
  }
  return out;
}

StatusOr<int> minimize(Tool& tool, const TranspileOptions& options) {
  MILLRACE_RETURN_IF_ERROR(check_flags(tool, options));
  const auto registry = ops::standard_registry();
  if (options.backward_only) return write_backward(tool, options, *registry);
  MILLRACE_ASSIGN_OR_RETURN(const TrainingPrograms made,
                            make_training_programs(tool, options, *registry));
  warn_of_minimize(tool, ops::lost_state_gradients(*made.main));
  if (!made.scheduled_rate.empty())
    tool.log(
        LogLevel::kWarning,
        "the learning rate '" + made.scheduled_rate +
            "' keeps its initial value unless it is fed in every step: the schedule is stored only "
            "for jobs of --fleet");
  MILLRACE_RETURN_IF_ERROR(write_minimize(tool, options, "main", "__model__", *made.main));
  MILLRACE_RETURN_IF_ERROR(write_minimize(tool, options, "main", "__startup__", *made.startup));
  return kDone;
}

}  // namespace millrace::tools
