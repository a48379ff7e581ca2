#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/status.h"

namespace millrace::fleet {

/// Reads the value of an environment variable; nothing if it is not set.
using EnvironmentReader = std::function<std::optional<std::string>(const std::string& name)>;

/// Reads the environment of this process.
EnvironmentReader process_environment();
/// All variables of the environment of this process, "NAME=VALUE" each.
std::vector<std::string> process_variables();

/// Rank and endpoints of this process, as set by its launcher.
struct JobEnvironment {
  std::string source = "none";  ///< "PADDLE", "Slurm", "Open MPI", "PMI", "torchrun", "none"
  std::string role;             ///< TRAINER, PSERVER, or empty
  int rank = 0;                 ///< rank of a trainer, or index of a server in its list
  int size = 1;                 ///< number of trainers
  int local_rank = 0;
  std::vector<std::string> trainer_endpoints;  ///< host:port in order of ranks; may be empty
  std::vector<std::string> server_endpoints;
  std::string own_endpoint;  ///< may be empty
  std::string master;        ///< host:port of rank 0 if there are no trainer_endpoints
  std::string job;
  bool by_mpirun = false;  ///< MPI can connect the ranks

  [[nodiscard]] bool is_alone() const { return size <= 1; }
};

/// Tries the launchers in this order: PADDLE_*, Slurm, Open MPI, MPICH and others with PMI,
/// torchrun. Old names of PADDLE_* variables are accepted.
/// Errors: kInvalidArgument naming the variable that is wrong, or that is missing although others
/// are set.
/// Source: design/user_expectations.md section 5, spec/fleet.md.
StatusOr<JobEnvironment> read_job_environment(const EnvironmentReader& read);

/// Variable with the file of the job's key, which `launch --job-key` sets for its children.
extern const char* const kJobKeyVariable;
/// Its value; empty if it is not set.
std::string job_key_file(const EnvironmentReader& read);

/// Variables of the original and of oneDNN that are set but have no effect on the tools, one line
/// each.
std::vector<std::string> unread_variables(const EnvironmentReader& read);

/// Splits "host:port,host:port"; drops blanks and empty entries.
std::vector<std::string> split_list(const std::string& text);
std::string join_list(const std::vector<std::string>& parts);

}  // namespace millrace::fleet
