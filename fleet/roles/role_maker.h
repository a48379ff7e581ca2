#pragma once

#include <string>
#include <vector>

#include "fleet/launch/job_environment.h"
#include "framework/base/status.h"

namespace millrace::io {
class Gather;
}

namespace millrace::fleet {

/// What a process of a job is; the numbers are those of the original.
enum class Role : int { kWorker = 1, kServer = 2, kHeterWorker = 3, kAll = 4, kCoordinator = 5 };

/// "worker", "server", "heter worker", "all", "coordinator"
const char* role_name(Role role);

/// Stages of a program that is cut over devices; filled for jobs with heter workers.
struct HeterStage {
  std::vector<std::string> all;       ///< endpoints of all heter workers
  std::vector<std::string> next;      ///< of the next stage
  std::vector<std::string> previous;  ///< of the stage before
  int stage_id = 0;
  int stage_num = 0;
  std::vector<int> stage_workers;  ///< workers of each stage
  std::string device;              ///< "cpu", "gpu:0", "xpu:0"
};

/// Store by which processes meet (PADDLE_GLOO_*).
struct MeetingOptions {
  enum class Who : uint8_t { kNobody = 0, kWorkers = 1, kAll = 2 };
  enum class Store : uint8_t { kNone = 0, kHdfs = 1, kFile = 2, kHttp = 3 };
  Who who = Who::kNobody;
  Store store = Store::kNone;
  std::string fs_name;
  std::string fs_ugi;
  std::string path;
  std::string http_endpoint;
  std::string prefix;  ///< name of the job
};

/// Which part of a job this process is. A plain value, made by one of the functions below, which
/// check it. Source: spec/fleet.md section 2.
struct RoleMaker {
  Role role = Role::kWorker;
  int id = 0;  ///< within the role; of heter workers: place in HeterStage::all
  int worker_num = 1;
  std::vector<std::string> server_endpoints;
  std::vector<std::string> worker_endpoints;  ///< may be empty
  std::vector<std::string> coordinator_endpoints;
  std::string own_endpoint;  ///< may be empty
  bool is_distributed = true;
  bool is_collective = false;
  HeterStage heter;
  MeetingOptions meeting;

  [[nodiscard]] bool is_worker() const { return role == Role::kWorker; }
  [[nodiscard]] bool is_server() const { return role == Role::kServer; }
  [[nodiscard]] bool is_heter_worker() const { return role == Role::kHeterWorker; }
  [[nodiscard]] bool is_first_worker() const { return is_worker() && id == 0; }
  [[nodiscard]] bool has_heter_workers() const { return !heter.all.empty(); }
  [[nodiscard]] int server_num() const { return static_cast<int>(server_endpoints.size()); }
  /// Number under which servers know this process: heter workers come behind the workers.
  [[nodiscard]] int role_id() const { return is_heter_worker() ? worker_num + id : id; }
  /// Machines of the job: different hosts of the workers' endpoints, 1 where they are not known.
  [[nodiscard]] int node_num() const;
};

/// The environment of PaddleCloud (PADDLE_PSERVERS_IP_PORT_LIST, TRAINING_ROLE, ...). Without the
/// list of servers: a single worker that is not distributed.
/// Errors: kInvalidArgument naming the variable that is missing or wrong.
StatusOr<RoleMaker> role_from_environment(const EnvironmentReader& read);

/// Arguments of the original's UserDefinedRoleMaker.
struct UserDefinedRole {
  int current_id = 0;
  Role role = Role::kWorker;
  int worker_num = 0;
  std::vector<std::string> server_endpoints;
  std::vector<std::string> worker_endpoints;  ///< in place of worker_num
};

/// Errors: kInvalidArgument for a role other than worker and server, ids outside of the job, no
/// servers or workers, empty or repeated endpoints, endpoints of another number than worker_num.
StatusOr<RoleMaker> user_defined_role(const UserDefinedRole& arguments);

/// A job of workers only. Errors: kInvalidArgument as above.
StatusOr<RoleMaker> user_defined_collective_role(int current_id,
                                                 const std::vector<std::string>& endpoints);

/// The older environment (GeneralRoleMaker): workers are counted by PADDLE_TRAINER_ENDPOINTS, a
/// server's id is PADDLE_PSERVER_ID or the place of POD_IP:PADDLE_PORT.
/// PADDLE_IS_BARRIER_ALL_ROLE=0: nobody meets. Errors: as role_from_environment().
StatusOr<RoleMaker> general_role_from_environment(const EnvironmentReader& read);

/// Two processes a node, as the original's MPISymetricRoleMaker has it: even ranks serve, odd ranks
/// work; ids are rank / 2.
/// \param endpoints  host:port of all ranks, in order; those of servers count
/// Errors: kInvalidArgument for an odd number of ranks, a rank outside of them, or two servers with
/// one endpoint.
StatusOr<RoleMaker> symmetric_role(int rank, const std::vector<std::string>& endpoints);

/// The same where ranks tell each other their endpoints, by MPI for example (executor/collective).
/// The original draws one port for all servers from a seed that two jobs have in common; here each
/// server says where it listens.
/// Errors: kInvalidArgument for an endpoint that is none; those of the exchange.
StatusOr<RoleMaker> gather_symmetric_role(io::Gather& ranks, const std::string& endpoint);

}  // namespace millrace::fleet
