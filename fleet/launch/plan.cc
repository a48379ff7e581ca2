#include "fleet/launch/plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "fleet/launch/free_ports.h"
#include "fleet/launch/job_environment.h"

namespace millrace::fleet {
namespace {

constexpr int kMostChildren = 1024;
constexpr int kLastPort = 65535;

Status usage(std::string text) {
  return {StatusCode::kUsage, std::move(text)};
}

StatusOr<std::vector<std::string>> free_endpoints(const std::string& host, int count) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int> ports, free_ports(count));
  std::vector<std::string> endpoints;
  endpoints.reserve(ports.size());
  for (const int port : ports) endpoints.push_back(fmt::format("{}:{}", host, port));
  return endpoints;
}

StatusOr<std::vector<std::string>> endpoints_of(const char* flag, int count,
                                                const std::vector<std::string>& given,
                                                const LaunchOptions& options, int first_port) {
  if (given.empty()) {
    if (first_port == 0) return free_endpoints(options.host, count);
    std::vector<std::string> list;
    for (int i = 0; i < count; ++i)
      list.push_back(fmt::format("{}:{}", options.host, first_port + i));
    return list;
  }
  if (count > 0 && given.size() != static_cast<size_t>(count))
    return usage(fmt::format("{}: expected {} endpoints, found {}", flag, count, given.size()));
  const std::set<std::string> distinct(given.begin(), given.end());
  if (distinct.size() != given.size())
    return usage(fmt::format("{}: an endpoint occurs twice in '{}'", flag, join_list(given)));
  for (const std::string& endpoint : given) {
    if (endpoint.rfind(':') == std::string::npos || endpoint.rfind(':') == 0)
      return usage(fmt::format("{}: expected host:port, found '{}'", flag, endpoint));
  }
  return given;
}

std::string host_of(const std::string& endpoint) {
  return endpoint.substr(0, endpoint.rfind(':'));
}
std::string port_of(const std::string& endpoint) {
  return endpoint.substr(endpoint.rfind(':') + 1);
}

// Variables of every child: disables the original's Gloo, and sets the name of the job.
std::map<std::string, std::string> common(const LaunchOptions& options) {
  return {{"PADDLE_JOB_ID", options.job_id}, {"PADDLE_NNODES", "1"},
          {"PADDLE_WITH_GLOO", "0"},         {"PADDLE_GLOO_RENDEZVOUS", "3"},
          {"PADDLE_GLOO_FS_PATH", ""},       {"PADDLE_GLOO_HTTP_ENDPOINT", ""}};
}

std::vector<ChildPlan> plan_collective(const LaunchOptions& options,
                                       const std::vector<std::string>& trainers) {
  std::vector<ChildPlan> children;
  const std::string size = std::to_string(trainers.size());
  for (size_t i = 0; i < trainers.size(); ++i) {
    const std::string rank = std::to_string(i);
    ChildPlan child{"trainer", static_cast<int>(i), common(options), 0};
    child.environment.insert({{"TRAINING_ROLE", "TRAINER"},
                              {"PADDLE_TRAINER_ID", rank},
                              {"PADDLE_TRAINERS_NUM", size},
                              {"PADDLE_CURRENT_ENDPOINT", trainers[i]},
                              {"PADDLE_TRAINER_ENDPOINTS", join_list(trainers)},
                              {"PADDLE_GLOBAL_RANK", rank},
                              {"PADDLE_GLOBAL_SIZE", size},
                              {"PADDLE_LOCAL_RANK", rank},
                              {"PADDLE_LOCAL_SIZE", size},
                              {"PADDLE_RANK_IN_NODE", rank},
                              {"FLAGS_selected_gpus", rank}});
    children.push_back(std::move(child));
  }
  return children;
}

ChildPlan ps_child(const LaunchOptions& options, const std::string& role, int rank,
                   const std::vector<std::string>& servers,
                   const std::vector<std::string>& trainers) {
  const bool is_server = role == "server";
  const std::string& own = (is_server ? servers : trainers)[static_cast<size_t>(rank)];
  ChildPlan child{role, rank, common(options), 0};
  const char* const name = is_server ? "PSERVER" : "TRAINER";
  child.environment.insert({{"TRAINING_ROLE", name},
                            {"PADDLE_ROLE", name},
                            {"PADDLE_PSERVERS_IP_PORT_LIST", join_list(servers)},
                            {"PADDLE_PSERVER_ENDPOINTS", join_list(servers)},
                            {"PADDLE_TRAINER_ENDPOINTS", join_list(trainers)},
                            {"PADDLE_TRAINERS_NUM", std::to_string(trainers.size())},
                            {"PADDLE_RANK", std::to_string(rank)},
                            {"PADDLE_PORT", port_of(own)},
                            {"POD_IP", host_of(own)}});
  if (!is_server) {
    child.environment["PADDLE_TRAINER_ID"] = std::to_string(rank);
    child.environment["PADDLE_CURRENT_ENDPOINT"] = own;
  }
  return child;
}

std::vector<ChildPlan> with_metrics(std::vector<ChildPlan> children, const LaunchOptions& options) {
  for (size_t i = 0; i < children.size() && options.metrics_port > 0; ++i)
    children[i].metrics_port = options.metrics_port + static_cast<int>(i);
  return children;
}

}  // namespace

StatusOr<std::vector<ChildPlan>> plan_launch(const LaunchOptions& options) {
  const int servers = std::max(options.server_num, static_cast<int>(options.servers.size()));
  const int trainers = std::max(
      {options.trainer_num, options.nproc_per_node, static_cast<int>(options.trainers.size())});
  if (servers + trainers > kMostChildren)
    return usage(
        fmt::format("expected at most {} processes, found {}", kMostChildren, servers + trainers));
  if (trainers < 1)
    return usage(
        "the number of processes is not set: give --nproc_per_node, or --server_num and "
        "--trainer_num");
  const int port = options.start_port;
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> trainer_list,
                            endpoints_of("--trainers", trainers, options.trainers, options,
                                         port == 0 ? 0 : port + servers));
  if (options.metrics_port + servers + trainers - 1 > kLastPort)
    return usage(fmt::format("--metrics: {} ports starting at {} would exceed {}",
                             servers + trainers, options.metrics_port, kLastPort));
  if (servers == 0) return with_metrics(plan_collective(options, trainer_list), options);
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<std::string> server_list,
                            endpoints_of("--servers", servers, options.servers, options, port));
  std::vector<ChildPlan> children;
  for (int i = 0; i < servers; ++i)
    children.push_back(ps_child(options, "server", i, server_list, trainer_list));
  for (int i = 0; i < trainers; ++i)
    children.push_back(ps_child(options, "trainer", i, server_list, trainer_list));
  return with_metrics(std::move(children), options);
}

}  // namespace millrace::fleet
