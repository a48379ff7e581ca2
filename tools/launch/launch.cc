#include "tools/launch/launch.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>
#include <nlohmann/json.hpp>

#include "fleet/launch/job_environment.h"
#include "fleet/launch/plan.h"
#include "fleet/launch/supervisor.h"
#include "io/job_key.h"
#include "tools/common/numbers.h"
#include "tools/common/switch.h"

namespace millrace::tools {
namespace launch_parts {
namespace {

using fleet::ChildPlan;
using fleet::JobEnvironment;

std::string text_of(const JobEnvironment& own, const std::vector<ChildPlan>& children) {
  std::string text =
      fmt::format("this process: rank {} of {}, role {}, determined by {}\n", own.rank, own.size,
                  own.role.empty() ? "none" : own.role,
                  own.source == "none" ? "nothing: no launcher's variables are set" : own.source);
  for (const ChildPlan& child : children) {
    text += fmt::format("[{}]\n", child.name());
    if (child.metrics_port > 0) text += fmt::format("metrics at port {}\n", child.metrics_port);
    for (const auto& [name, value] : child.environment) text += fmt::format("{}={}\n", name, value);
  }
  return text;
}

std::string json_of(const JobEnvironment& own, const std::vector<ChildPlan>& children) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChildPlan& child : children) {
    list.push_back(
        {{"role", child.role}, {"rank", child.rank}, {"environment", child.environment}});
    if (child.metrics_port > 0) list.back()["metrics_port"] = child.metrics_port;
  }
  const nlohmann::ordered_json document = {
      {"schema", {{"name", "launch-environment"}, {"version", 1}}},
      {"process",
       {{"source", own.source}, {"role", own.role}, {"rank", own.rank}, {"size", own.size}}},
      {"children", list}};
  return document.dump(2) + "\n";
}

// Logs each line as a log line, so that none is mistaken for output of another tool.
void log_lines(const Tool& tool, const std::string& text) {
  llvm::SmallVector<llvm::StringRef, 32> lines;
  llvm::StringRef(text).split(lines, '\n', -1, false);
  for (const llvm::StringRef line : lines) tool.log(LogLevel::kError, std::string_view(line));
}

// Options of a command without "--" before it would count as options of launch.
Status check_command(const LaunchFlags& flags) {
  if (flags.command.empty())
    return {StatusCode::kUsage, "no command to start; expected it after --"};
  auto at = std::ranges::find(flags.arguments, flags.command.front());
  if (std::find(flags.arguments.begin(), at, "--") != at) return Ok();
  at = std::find_if(at, flags.arguments.end(),
                    [](const std::string& argument) { return argument.starts_with('-'); });
  if (at == flags.arguments.end() || *at == "--") return Ok();
  return {StatusCode::kUsage,
          fmt::format("expected -- before the command '{}': after it, launch would take {} as an "
                      "option of its own",
                      flags.command.front(), *at)};
}

// Makes the key of the job, and tells the children its file.
Status share_key(const LaunchFlags& flags, std::vector<ChildPlan>& children) {
  const std::string path = std::filesystem::absolute(flags.job_key).string();
  if (!flags.print_env) {
    MILLRACE_RETURN_IF_ERROR(io::JobKey::make(path));
    MILLRACE_RETURN_IF_ERROR(io::JobKey::read(path).status());
  }
  for (ChildPlan& child : children) child.environment[fleet::kJobKeyVariable] = path;
  return Ok();
}

}  // namespace
}  // namespace launch_parts

void add_launch_options(Tool& tool, LaunchFlags& flags) {
  CLI::App& app = tool.app();
  app.option_defaults()->group("Job");
  app.add_option("--nproc_per_node,--nproc-per-node", flags.nproc_per_node,
                 "ranks of a collective job")
      ->check(whole_number(1, 1024))
      ->type_name("K");
  app.add_option("--server_num,--server-num", flags.server_num, "number of parameter servers")
      ->check(whole_number(0, 1024))
      ->type_name("N");
  app.add_option("--trainer_num,--trainer-num", flags.trainer_num,
                 "number of trainers, with --server_num")
      ->check(whole_number(0, 1024))
      ->type_name("M");
  app.add_option("--heter_worker_num,--heter-worker-num", flags.heter_worker_num,
                 "number of heter workers, with --server_num")
      ->check(whole_number(0, 1024))
      ->type_name("H");
  app.add_option("--servers", flags.servers, "endpoints of the servers; default: free ports")
      ->type_name("HOST:PORT,...");
  app.add_option("--trainers", flags.trainers, "endpoints of the trainers or ranks")
      ->type_name("HOST:PORT,...");
  app.add_option("--heter_workers,--heter-workers", flags.heter_workers,
                 "endpoints of the heter workers; default: free ports")
      ->type_name("HOST:PORT,...");
  app.add_option("--host", flags.host, "address of generated endpoints")->type_name("HOST");
  app.add_option("--start_port,--start-port", flags.start_port,
                 "first port of generated endpoints; 0: free ports")
      ->check(whole_number(0, 65535));
  app.add_option("--job_id,--job-id", flags.job_id,
                 "name of the job; connections from processes of other jobs are refused")
      ->type_name("NAME");
  app.add_option(
         "--job-key", flags.job_key,
         "file with a secret key, made if it does not exist: the processes of the job refuse "
         "peers without it")
      ->type_name("FILE");
  app.option_defaults()->group("Children");
  app.add_option(
         "--metrics", flags.metrics,
         "port of the metrics page of the first process; the other processes use the next "
         "ports (servers, heter workers, trainers). Replaces {metrics} in the command; without it, "
         "--metrics is appended")
      ->check(whole_number(1, 65535))
      ->default_str("")
      ->type_name("PORT");
  app.add_option("--log_dir,--log-dir", flags.log_dir, "folder for the logs <role>.<rank>.log")
      ->type_name("DIR");
  add_switch(app, "--log_overwrite", flags.log_overwrite,
             "overwrite existing logs; default: append");
  app.add_option("--max_restart,--max-restart", flags.max_restart,
                 "maximum number of restarts of the whole job after a temporary failure (exit 5)")
      ->check(whole_number(0, 1000));
  app.add_option("--grace", flags.grace, "seconds from SIGTERM to SIGKILL")
      ->check(real_number(0.0, 3600.0));
  app.add_flag("--print-env", flags.print_env,
               "print the environment of this process and of its children, then exit");
  app.add_option("command", flags.command, "command line of every child, after --")
      ->type_name("COMMAND");
  app.option_defaults()->group("Options");
}

StatusOr<int> run_launch(Tool& tool, const LaunchFlags& flags) {
  using namespace launch_parts;
  fleet::LaunchOptions options;
  options.nproc_per_node = flags.nproc_per_node;
  options.server_num = flags.server_num;
  options.trainer_num = flags.trainer_num;
  options.heter_worker_num = flags.heter_worker_num;
  options.heter_workers = fleet::split_list(flags.heter_workers);
  options.servers = fleet::split_list(flags.servers);
  options.trainers = fleet::split_list(flags.trainers);
  options.host = flags.host;
  options.start_port = flags.start_port;
  options.metrics_port = flags.metrics;
  options.job_id = flags.job_id;
  if (flags.nproc_per_node > 0 && flags.server_num > 0 && flags.trainer_num > 0 &&
      flags.nproc_per_node != flags.trainer_num)
    return Status(StatusCode::kUsage, "expected only one of --nproc_per_node and --trainer_num");
  const bool wants_children = flags.nproc_per_node + flags.server_num + flags.trainer_num > 0 ||
                              !options.servers.empty() || !options.trainers.empty() ||
                              flags.heter_worker_num > 0 || !options.heter_workers.empty();
  for (const std::string& remark : fleet::unread_variables(fleet::process_environment()))
    tool.log(LogLevel::kWarning, remark);
  std::vector<ChildPlan> children;
  if (wants_children || !flags.print_env) {
    MILLRACE_ASSIGN_OR_RETURN(children, fleet::plan_launch(options));
  }
  if (!flags.job_key.empty()) MILLRACE_RETURN_IF_ERROR(share_key(flags, children));
  if (flags.print_env) {
    MILLRACE_ASSIGN_OR_RETURN(const JobEnvironment own,
                              fleet::read_job_environment(fleet::process_environment()));
    MILLRACE_RETURN_IF_ERROR(
        tool.write_output(tool.common().json ? json_of(own, children) : text_of(own, children)));
    return kDone;
  }
  MILLRACE_RETURN_IF_ERROR(check_command(flags));
  fleet::SupervisorOptions supervisor;
  supervisor.command = flags.command;
  supervisor.log_dir = flags.log_dir;
  supervisor.append_logs = !flags.log_overwrite;
  supervisor.grace_ms = static_cast<int64_t>(flags.grace * 1000);
  supervisor.say = [&](const std::string& line) { tool.log(LogLevel::kInfo, line); };
  for (int run = 0;; ++run) {
    MILLRACE_ASSIGN_OR_RETURN(const fleet::JobOutcome outcome,
                              fleet::supervise(children, supervisor));
    log_lines(tool, outcome.report);
    constexpr int kMayPass = 5;
    if (outcome.code == 0 || outcome.by_signal || run >= flags.max_restart ||
        (outcome.code != kMayPass && outcome.code <= 128))
      return outcome.code;
    tool.log(LogLevel::kInfo, fmt::format("restart {} of {}", run + 1, flags.max_restart));
    supervisor.append_logs = true;
  }
}

}  // namespace millrace::tools
