#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "jobs/run/batch.h"
#include "tools/common/flag_names.h"
#include "tools/run/parallel.h"
#include "tools/run/run_once.h"
#include "tools/run/session_options.h"

namespace millrace::tools {
namespace {

// The options of the command that apply to each case.
RunOptions options_of_cases(const RunOptions& all) {
  RunOptions each;
  each.devices = all.gpus.empty() ? "cpu:1" : all.devices;
  each.gpus = all.gpus;
  each.debug_memory = all.debug_memory;
  each.optimize = all.optimize;
  each.precision = all.precision;
  each.inter_op = all.inter_op;
  return each;
}

Status run_line(const Tool& tool, const RunOptions& each, const std::string& line,
                const std::shared_ptr<const executor::Runtime>& runtime,
                jobs::BatchResult& result) {
  MILLRACE_ASSIGN_OR_RETURN(const jobs::BatchCase one, jobs::parse_batch_case(line));
  MILLRACE_ASSIGN_OR_RETURN(jobs::SessionOptions how, session_options(tool, each));
  MILLRACE_ASSIGN_OR_RETURN(jobs::FeedOptions feed, feed_options(tool, each));
  return jobs::run_batch_case(one, std::move(how), std::move(feed), runtime, result);
}

}  // namespace

StatusOr<int> run_batch(Tool& tool, const RunOptions& options,
                        const std::shared_ptr<const executor::Runtime>& runtime,
                        const SignalWatch& watch) {
  MILLRACE_ASSIGN_OR_RETURN(const int devices, device_count(options));
  if (devices > 1 && options.devices.find(':') != std::string::npos) {
    return Status(StatusCode::kUsage,
                  "--devices " + options.devices + ": the cases of --batch run on one device");
  }
  const RunOptions each = options_of_cases(options);
  std::ifstream list(options.batch);
  if (!list) return NotFound("cannot open '{}'", options.batch);
  std::string line;
  while (!watch.stopped() && std::getline(list, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    jobs::BatchResult result;
    const Status status = run_line(tool, each, line, runtime, result);
    nlohmann::json answer = {{"ok", status.ok()}};
    if (!status.ok()) answer["error"] = with_flags(status).to_string();
    if (result.ops_on_cpu > 0) answer["ops_on_cpu"] = result.ops_on_cpu;
    const std::string text =
        answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  if (watch.seen() == 0) return kDone;
  tool.log(LogLevel::kWarning, fmt::format("stopped by signal {}", watch.seen()));
  return watch.exit_code();
}

}  // namespace millrace::tools
