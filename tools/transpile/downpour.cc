#include "tools/transpile/downpour.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fleet/downpour/downpour_job.h"
#include "framework/base/errors.h"
#include "jobs/config/downpour_config.h"
#include "jobs/distribute/made_program.h"
#include "tools/transpile/fleet.h"
#include "tools/transpile/minimize.h"
#include "tools/transpile/write_below.h"

namespace millrace::tools {

namespace downpour {

using Files = std::vector<std::pair<std::string, std::string>>;

Files description_files(const fleet::DownpourInfo& info) {
  return {{"fleet_desc.txt", info.fleet_desc}, {"opt_info.json", fleet::opt_info_json(info)}};
}

StatusOr<int> write_job(Tool& tool, const TranspileOptions& options,
                        const ops::OpRegistry& registry, jobs::DownpourConfig& config) {
  if (config.losses.size() > 1)
    return Unimplemented(
               "'losses': workers of a DownpourSGD job run one loss, found {} (expected 1)",
               config.losses.size())
        .with_hint("leave out 'pservers' and 'trainers' to write programs and descriptions");
  if (options.startup.empty())
    return Status(StatusCode::kUsage,
                  "--startup is required with --downpour: it initializes the dense parameters");
  const jobs::DownpourConfig::Loss& loss = config.losses.front();
  MILLRACE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Program> main,
      read_checked_program(tool, registry, loss.program.empty() ? options.program : loss.program));
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> startup,
                            read_checked_program(tool, registry, options.startup));
  MILLRACE_ASSIGN_OR_RETURN(const fleet::DownpourJob job,
                            fleet::DownpourJob::create(registry, *main, *startup, loss.name,
                                                       config.options, std::move(config.spec)));
  const JobToWrite what{.job = job.job(),
                        .role = [&](const fleet::JobRole& role) { return job.role(role); },
                        .more_files = description_files(job.info()),
                        .is_downpour = true};
  return write_fleet_job(tool, options, registry, what);
}

// Programs of losses, each once, in order of the losses.
class LossPrograms {
 public:
  LossPrograms(Tool& tool, const ops::OpRegistry& registry) : tool_(tool), registry_(registry) {}

  StatusOr<Program*> find(const std::string& path) {
    const auto at = std::find(paths_.begin(), paths_.end(), path);
    if (at != paths_.end()) return programs_[static_cast<size_t>(at - paths_.begin())].get();
    MILLRACE_ASSIGN_OR_RETURN(programs_.emplace_back(),
                              read_checked_program(tool_, registry_, path));
    paths_.push_back(path);
    return programs_.back().get();
  }
  [[nodiscard]] const std::vector<std::unique_ptr<Program>>& all() const { return programs_; }

 private:
  Tool& tool_;
  const ops::OpRegistry& registry_;
  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<Program>> programs_;
};

StatusOr<int> write_description(Tool& tool, const TranspileOptions& options,
                                const ops::OpRegistry& registry,
                                const jobs::DownpourConfig& config) {
  if (!options.startup.empty())
    tool.log(LogLevel::kWarning,
             "--startup has no effect without 'pservers' and 'trainers' in the file of --downpour");
  LossPrograms programs(tool, registry);
  std::vector<fleet::DownpourLoss> losses;
  for (const jobs::DownpourConfig::Loss& loss : config.losses) {
    MILLRACE_ASSIGN_OR_RETURN(Program* const program,
                              programs.find(loss.program.empty() ? options.program : loss.program));
    losses.push_back({program, loss.name});
  }
  MILLRACE_ASSIGN_OR_RETURN(const fleet::DownpourResult made,
                            fleet::minimize_downpour(registry, losses, config.options));
  for (const std::string& remark : made.remarks) tool.log(LogLevel::kWarning, remark);
  for (size_t i = 0; i < programs.all().size(); ++i) {
    const std::string folder = fmt::format("main_{}", i);
    if (options.verify)
      MILLRACE_RETURN_IF_ERROR(
          jobs::check_made_program(registry, *programs.all()[i], folder + "/__model__"));
    MILLRACE_RETURN_IF_ERROR(
        write_below(tool, folder, "__model__",
                    jobs::made_program_bytes(*programs.all()[i], options.format == "text")));
  }
  for (const auto& [name, bytes] : description_files(made.info))
    MILLRACE_RETURN_IF_ERROR(write_below(tool, "", name, bytes));
  return kDone;
}

}  // namespace downpour

StatusOr<int> write_downpour(Tool& tool, const TranspileOptions& options) {
  if (tool.common().output.empty())
    return Status(StatusCode::kUsage, "-o FOLDER is required with --downpour");
  for (const auto& [flag, given] : {std::pair("--minimize", !options.minimize.empty()),
                                    {"--fleet", !options.fleet.empty()},
                                    {"--backward-only", options.backward_only}}) {
    if (given)
      return Status(StatusCode::kUsage, fmt::format("--downpour and {} exclude each other", flag));
  }
  const auto registry = ops::standard_registry();
  MILLRACE_ASSIGN_OR_RETURN(
      jobs::DownpourConfig config,
      jobs::read_downpour_config(options.downpour, fleet::process_environment()));
  if (config.spec.servers.empty())
    return downpour::write_description(tool, options, *registry, config);
  return downpour::write_job(tool, options, *registry, config);
}

}  // namespace millrace::tools
