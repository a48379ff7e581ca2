#include "fleet/launch/job_environment.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <fmt/ranges.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>
#include <unistd.h>

#include "framework/base/errors.h"

namespace millrace::fleet {
namespace {

constexpr int kMostRanks = 1 << 20;

// The first of several names that is set and not empty.
std::optional<std::string> first_of(const EnvironmentReader& read,
                                    std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    std::optional<std::string> value = read(name);
    if (value && !value->empty()) return value;
  }
  return std::nullopt;
}

StatusOr<std::optional<int>> read_number(const EnvironmentReader& read,
                                         std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const std::optional<std::string> value = read(name);
    if (!value || value->empty()) continue;
    int number = 0;
    if (llvm::StringRef(*value).getAsInteger(10, number) || number < 0 || number > kMostRanks)
      return InvalidArgument("environment: expected a number in {}, found '{}'", name, *value);
    return std::optional<int>(number);
  }
  return std::optional<int>();
}

// Index of this process's endpoint in a list; -1 if it is not in the list.
int place_of(const std::vector<std::string>& list, const std::string& own) {
  const auto found = std::find(list.begin(), list.end(), own);
  return found == list.end() ? -1 : static_cast<int>(found - list.begin());
}

std::vector<std::string> server_list(const EnvironmentReader& read) {
  if (const auto list =
          first_of(read, {"PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_PSERVER_ENDPOINTS"}))
    return split_list(*list);
  const auto hosts = first_of(read, {"PADDLE_PSERVER_IPS", "PADDLE_PSERVERS"});
  const auto port = first_of(read, {"PADDLE_PSERVER_PORT", "PADDLE_PORT"});
  if (!hosts || !port) return {};
  std::vector<std::string> list = split_list(*hosts);
  for (std::string& entry : list) {
    if (entry.find(':') == std::string::npos) entry += ":" + *port;
  }
  return list;
}

std::string own_endpoint(const EnvironmentReader& read) {
  if (const auto own = first_of(read, {"PADDLE_CURRENT_ENDPOINT"})) return *own;
  const auto host = first_of(read, {"POD_IP", "PADDLE_CURRENT_IP"});
  const auto port = first_of(read, {"PADDLE_PORT"});
  return host && port ? *host + ":" + *port : std::string();
}

Status read_server_rank(JobEnvironment& job) {
  job.rank = place_of(job.server_endpoints, job.own_endpoint);
  if (job.rank >= 0) return Ok();
  return InvalidArgument(
      "environment: POD_IP and PADDLE_PORT say that this server is '{}', which is not in "
      "PADDLE_PSERVERS_IP_PORT_LIST '{}'",
      job.own_endpoint, join_list(job.server_endpoints));
}

Status read_heter_rank(const EnvironmentReader& read, JobEnvironment& job) {
  const std::string workers = read("PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST").value_or("");
  job.rank = place_of(split_list(workers), job.own_endpoint);
  if (job.rank >= 0) return Ok();
  return InvalidArgument(
      "environment: POD_IP and PADDLE_PORT say that this heter worker is '{}', which is not in "
      "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST '{}'",
      job.own_endpoint, workers);
}

Status read_trainer_rank(const EnvironmentReader& read, JobEnvironment& job) {
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<int> rank,
                            read_number(read, {"PADDLE_TRAINER_ID"}));
  const int place = place_of(job.trainer_endpoints, job.own_endpoint);
  if (rank) {
    job.rank = *rank;
  } else if (place >= 0) {
    job.rank = place;
  } else if (job.size > 1) {
    return InvalidArgument("environment: there are {} trainers, but PADDLE_TRAINER_ID is not set",
                           job.size);
  }
  if (job.rank >= job.size)
    return InvalidArgument("environment: PADDLE_TRAINER_ID is {}, but PADDLE_TRAINERS_NUM is {}",
                           job.rank, job.size);
  if (place >= 0 && place != job.rank &&
      job.trainer_endpoints.size() == static_cast<size_t>(job.size))
    return InvalidArgument(
        "environment: PADDLE_TRAINER_ID is {}, but PADDLE_CURRENT_ENDPOINT '{}' is number {} in "
        "PADDLE_TRAINER_ENDPOINTS",
        job.rank, job.own_endpoint, place);
  return Ok();
}

// Processes connect by other means, so the original's Gloo is never started.
void remark_gloo(const EnvironmentReader& read, std::vector<std::string>& remarks) {
  const std::string who = read("PADDLE_WITH_GLOO").value_or("");
  if (who.empty() || who == "0") return;
  remarks.push_back(fmt::format(
      "PADDLE_WITH_GLOO={} has no effect: workers synchronize through their servers or by --engine",
      who));
  for (const char* const name :
       {"PADDLE_GLOO_RENDEZVOUS", "PADDLE_GLOO_FS_NAME", "PADDLE_GLOO_FS_UGI",
        "PADDLE_GLOO_FS_PATH", "PADDLE_GLOO_HTTP_ENDPOINT"}) {
    if (!read(name).value_or("").empty())
      remarks.push_back(fmt::format("{} has no effect, as PADDLE_WITH_GLOO has none", name));
  }
}

void remark_barrier(const EnvironmentReader& read, std::vector<std::string>& remarks) {
  if (read("FLAGS_LAUNCH_BARRIER").value_or("1") != "0") return;
  remarks.emplace_back(
      "FLAGS_LAUNCH_BARRIER=0 has no effect on the tools: trainers always wait for their servers");
}

// Checks for values that are not finite, and limits of calls, which the tools take as options.
void remark_flags(const EnvironmentReader& read, std::vector<std::string>& remarks) {
  constexpr std::pair<const char*, const char*> kOptions[] = {
      {"FLAGS_check_nan_inf", "--check-nan"},
      {"FLAGS_check_nan_inf_level", "--check-nan"},
      {"PADDLE_INF_NAN_SKIP_OP", "--check-nan"},
      {"PADDLE_INF_NAN_SKIP_ROLE", "--check-nan"},
      {"PADDLE_INF_NAN_SKIP_VAR", "--check-nan"},
      {"FLAGS_rpc_deadline", "--deadline-ms"},
      {"FLAGS_rpc_retry_times", "--reconnect-timeout-ms"},
  };
  for (const auto& [name, option] : kOptions) {
    const std::string value = read(name).value_or("");
    if (value.empty() || value == "0" || llvm::StringRef(value).equals_insensitive("false"))
      continue;
    remarks.push_back(
        fmt::format("{}={} has no effect on the tools, which have {}", name, value, option));
  }
}

// oneDNN uses all instructions of the processor where it does not know the name.
void remark_instructions(const EnvironmentReader& read, std::vector<std::string>& remarks) {
  constexpr const char* kKnown[] = {"ALL",
                                    "DEFAULT",
                                    "SSE41",
                                    "AVX",
                                    "AVX2",
                                    "AVX2_VNNI",
                                    "AVX512_MIC",
                                    "AVX512_MIC_4OPS",
                                    "AVX512_CORE",
                                    "AVX512_CORE_VNNI",
                                    "AVX512_CORE_BF16",
                                    "AVX512_CORE_AMX"};
  for (const char* const name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    const std::string value = read(name).value_or("");
    const bool known = llvm::any_of(
        kKnown, [&](const char* isa) { return llvm::StringRef(value).equals_insensitive(isa); });
    if (value.empty() || known) continue;
    remarks.push_back(fmt::format("{}={} has no effect: expected one of {}", name, value,
                                  fmt::join(kKnown, ", ")));
  }
}

StatusOr<JobEnvironment> read_paddle(const EnvironmentReader& read) {
  JobEnvironment job;
  job.source = "PADDLE";
  job.role = first_of(read, {"TRAINING_ROLE", "PADDLE_ROLE", "PADDLE_TRAINING_ROLE"}).value_or("");
  if (!job.role.empty() && job.role != "TRAINER" && job.role != "PSERVER" &&
      job.role != "HETER_TRAINER")
    return InvalidArgument(
        "environment: expected TRAINING_ROLE TRAINER, PSERVER or HETER_TRAINER, found '{}'",
        job.role);
  job.trainer_endpoints = split_list(
      first_of(read, {"PADDLE_TRAINER_ENDPOINTS", "PADDLE_TRAINERS_ENDPOINTS"}).value_or(""));
  job.server_endpoints = server_list(read);
  job.own_endpoint = own_endpoint(read);
  job.master = first_of(read, {"PADDLE_MASTER"}).value_or("");
  job.job = first_of(read, {"PADDLE_JOB_ID", "SYS_JOB_ID"}).value_or("");
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<int> count,
                            read_number(read, {"PADDLE_TRAINERS_NUM", "PADDLE_GLOBAL_SIZE"}));
  job.size = count ? *count : std::max(1, static_cast<int>(job.trainer_endpoints.size()));
  if (job.size < 1) return InvalidArgument("environment: PADDLE_TRAINERS_NUM is 0");
  // trainers of jobs with servers do not connect to each other
  if (job.role != "PSERVER" && job.server_endpoints.empty() && !job.trainer_endpoints.empty() &&
      job.trainer_endpoints.size() != static_cast<size_t>(job.size))
    return InvalidArgument(
        "environment: PADDLE_TRAINERS_NUM is {}, but PADDLE_TRAINER_ENDPOINTS has {} entries",
        job.size, job.trainer_endpoints.size());
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<int> local,
                            read_number(read, {"PADDLE_LOCAL_RANK", "PADDLE_RANK_IN_NODE"}));
  job.local_rank = local.value_or(0);
  if (job.role == "PSERVER") {
    MILLRACE_RETURN_IF_ERROR(read_server_rank(job));
  } else if (job.role == "HETER_TRAINER") {
    MILLRACE_RETURN_IF_ERROR(read_heter_rank(read, job));
  } else {
    MILLRACE_RETURN_IF_ERROR(read_trainer_rank(read, job));
  }
  return job;
}

struct Launcher {
  const char* source;
  const char* rank;
  const char* size;
  const char* local_rank;
  bool by_mpirun;
};
// In order of precedence: Slurm starts mpirun, and mpirun torchrun.
constexpr Launcher kLaunchers[] = {
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", false},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     true},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", true},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", false},
};

StatusOr<std::optional<JobEnvironment>> read_launcher(const EnvironmentReader& read,
                                                      const Launcher& launcher) {
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<int> rank, read_number(read, {launcher.rank}));
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<int> size, read_number(read, {launcher.size}));
  if (!rank || !size) return std::optional<JobEnvironment>();
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<int> local,
                            read_number(read, {launcher.local_rank}));
  if (*size < 1 || *rank >= *size)
    return InvalidArgument("environment: {} is {}, but {} is {}", launcher.rank, *rank,
                           launcher.size, *size);
  JobEnvironment job;
  job.source = launcher.source;
  job.role = "TRAINER";
  job.rank = *rank;
  job.size = *size;
  job.local_rank = local.value_or(0);
  job.by_mpirun = launcher.by_mpirun;
  const auto host = first_of(read, {"MASTER_ADDR"});
  const auto port = first_of(read, {"MASTER_PORT"});
  if (host && port) job.master = *host + ":" + *port;
  return std::optional(job);
}

}  // namespace

EnvironmentReader process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

std::vector<std::string> process_variables() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

StatusOr<JobEnvironment> read_job_environment(const EnvironmentReader& read) {
  const auto any = first_of(read, {"PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM",
                                   "PADDLE_TRAINER_ENDPOINTS", "PADDLE_TRAINERS_ENDPOINTS",
                                   "PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_PSERVER_ENDPOINTS",
                                   "PADDLE_PSERVER_IPS", "TRAINING_ROLE", "PADDLE_TRAINING_ROLE"});
  if (any) return read_paddle(read);
  for (const Launcher& launcher : kLaunchers) {
    MILLRACE_ASSIGN_OR_RETURN(const std::optional<JobEnvironment> job,
                              read_launcher(read, launcher));
    if (job) return *job;
  }
  return JobEnvironment();
}

const char* const kJobKeyVariable = "MILLRACE_JOB_KEY";

std::string job_key_file(const EnvironmentReader& read) {
  return read(kJobKeyVariable).value_or("");
}

std::vector<std::string> unread_variables(const EnvironmentReader& read) {
  std::vector<std::string> remarks;
  remark_gloo(read, remarks);
  remark_barrier(read, remarks);
  remark_flags(read, remarks);
  remark_instructions(read, remarks);
  return remarks;
}

std::vector<std::string> split_list(const std::string& text) {
  llvm::SmallVector<llvm::StringRef, 8> parts;
  llvm::StringRef(text).split(parts, ',', -1, false);
  std::vector<std::string> list;
  for (const llvm::StringRef part : parts) {
    if (!part.trim().empty()) list.push_back(part.trim().str());
  }
  return list;
}

std::string join_list(const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, ","));
}

}  // namespace millrace::fleet
