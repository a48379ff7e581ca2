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

// The endpoints of a job with servers.
struct Places {
  std::vector<std::string> servers;
  std::vector<std::string> trainers;
  std::vector<std::string> heter_workers;
};

// The two stages of a program that trainers and heter workers share.
void add_stages(ChildPlan& child, const Places& places) {
  if (places.heter_workers.empty()) return;
  const bool is_worker = child.role == "heter";
  const std::string workers = join_list(places.heter_workers);
  child.environment.insert(
      {{"PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST", workers},
       {"PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST", is_worker ? "" : workers},
       {"PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST", is_worker ? join_list(places.trainers) : ""},
       {"STAGE_ID", is_worker ? "2" : "1"},
       {"STAGE_NUM", "2"},
       {"PADDLE_STAGE_TRAINERS_NUM",
        fmt::format("[{}, {}]", places.trainers.size(), places.heter_workers.size())},
       {"HETER_DEVICE_TYPE", "cpu"}});
}

ChildPlan ps_child(const LaunchOptions& options, const std::string& role, int rank,
                   const Places& places) {
  const auto& [servers, trainers, heter_workers] = places;
  const bool is_trainer = role == "trainer";
  const std::vector<std::string>& peers = role == "server" ? servers
                                          : is_trainer     ? trainers
                                                           : heter_workers;
  const std::string& own = peers[static_cast<size_t>(rank)];
  ChildPlan child{role, rank, common(options), 0};
  const char* const name = role == "server" ? "PSERVER" : is_trainer ? "TRAINER" : "HETER_TRAINER";
  child.environment.insert({{"TRAINING_ROLE", name},
                            {"PADDLE_ROLE", name},
                            {"PADDLE_PSERVERS_IP_PORT_LIST", join_list(servers)},
                            {"PADDLE_PSERVER_ENDPOINTS", join_list(servers)},
                            {"PADDLE_TRAINER_ENDPOINTS", join_list(trainers)},
                            {"PADDLE_TRAINERS_NUM", std::to_string(trainers.size())},
                            {"PADDLE_RANK", std::to_string(rank)},
                            {"PADDLE_PORT", port_of(own)},
                            {"POD_IP", host_of(own)}});
  if (is_trainer) {
    child.environment["PADDLE_TRAINER_ID"] = std::to_string(rank);
    child.environment["PADDLE_CURRENT_ENDPOINT"] = own;
  }
  if (role != "server") add_stages(child, places);
  return child;
}

std::vector<ChildPlan> with_metrics(std::vector<ChildPlan> children, const LaunchOptions& options) {
  for (size_t i = 0; i < children.size() && options.metrics_port > 0; ++i)
    children[i].metrics_port = options.metrics_port + static_cast<int>(i);
  return children;
}

}  // namespace

namespace {

struct Counts {
  int servers = 0;
  int trainers = 0;
  int heter_workers = 0;
  [[nodiscard]] int all() const { return servers + trainers + heter_workers; }
};

StatusOr<Counts> count_children(const LaunchOptions& options) {
  const auto most = [](std::initializer_list<int> counts, const std::vector<std::string>& listed) {
    return std::max(std::max(counts), static_cast<int>(listed.size()));
  };
  const Counts counts{most({options.server_num}, options.servers),
                      most({options.trainer_num, options.nproc_per_node}, options.trainers),
                      most({options.heter_worker_num}, options.heter_workers)};
  if (counts.all() > kMostChildren)
    return usage(
        fmt::format("expected at most {} processes, found {}", kMostChildren, counts.all()));
  if (counts.trainers < 1)
    return usage(
        "the number of processes is not set: give --nproc_per_node, or --server_num and "
        "--trainer_num");
  if (counts.heter_workers > 0 && counts.servers == 0)
    return usage(
        "--heter_worker_num needs --server_num: heter workers are part of jobs with servers");
  if (options.metrics_port + counts.all() - 1 > kLastPort)
    return usage(fmt::format("--metrics: {} ports starting at {} would exceed {}", counts.all(),
                             options.metrics_port, kLastPort));
  return counts;
}

}  // namespace

StatusOr<std::vector<ChildPlan>> plan_launch(const LaunchOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const Counts counts, count_children(options));
  const int port = options.start_port;
  const auto after = [port](int others) { return port == 0 ? 0 : port + others; };
  Places places;
  MILLRACE_ASSIGN_OR_RETURN(places.trainers,
                            endpoints_of("--trainers", counts.trainers, options.trainers, options,
                                         after(counts.servers)));
  if (counts.servers == 0) return with_metrics(plan_collective(options, places.trainers), options);
  MILLRACE_ASSIGN_OR_RETURN(
      places.servers, endpoints_of("--servers", counts.servers, options.servers, options, port));
  if (counts.heter_workers > 0) {
    MILLRACE_ASSIGN_OR_RETURN(
        places.heter_workers,
        endpoints_of("--heter_workers", counts.heter_workers, options.heter_workers, options,
                     after(counts.servers + counts.trainers)));
  }
  std::vector<ChildPlan> children;
  for (const auto& [role, count] : {std::pair("server", counts.servers),
                                    {"heter", counts.heter_workers},
                                    {"trainer", counts.trainers}}) {
    for (int i = 0; i < count; ++i) children.push_back(ps_child(options, role, i, places));
  }
  return with_metrics(std::move(children), options);
}

}  // namespace millrace::fleet
