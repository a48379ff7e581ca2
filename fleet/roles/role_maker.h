#pragma once

#include <string>
#include <vector>

#include "fleet/launch/job_environment.h"
#include "framework/base/status.h"

namespace millrace::io {
class Gather;
}

namespace millrace::fleet {

/// Role of a process in a job; the numbers are those of the original.
enum class Role : int { kWorker = 1, kServer = 2, kHeterWorker = 3, kAll = 4, kCoordinator = 5 };

/// "worker", "server", "heter worker", "all", "coordinator"
const char* role_name(Role role);

/// Stages of a program that is split over devices; set in jobs with heter workers.
struct HeterStage {
  std::vector<std::string> all;       ///< endpoints of all heter workers
  std::vector<std::string> next;      ///< endpoints of the next stage
  std::vector<std::string> previous;  ///< endpoints of the previous stage
  int stage_id = 0;
  int stage_num = 0;
  std::vector<int> stage_workers;  ///< number of workers of each stage
  std::string device;              ///< "cpu", "gpu:0", "xpu:0"
};

/// Store by which processes find each other (PADDLE_GLOO_*).
struct MeetingOptions {
  enum class Who : uint8_t { kNone = 0, kWorkers = 1, kAll = 2 };
  enum class Store : uint8_t { kNone = 0, kHdfs = 1, kFile = 2, kHttp = 3 };
  Who who = Who::kNone;
  Store store = Store::kNone;
  std::string fs_name;
  std::string fs_ugi;
  std::string path;
  std::string http_endpoint;
  std::string prefix;  ///< name of the job
};

/// The role of this process in a job. A plain value, created by one of the functions below, which
/// validate it. Source: spec/fleet.md section 2.
struct RoleMaker {
  Role role = Role::kWorker;
  int id = 0;  ///< within the role; for heter workers the index in HeterStage::all
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
  /// Number by which servers identify this process: heter workers are numbered after the workers.
  [[nodiscard]] int role_id() const { return is_heter_worker() ? worker_num + id : id; }
  /// Number of machines of the job: different hosts of the workers' endpoints, 1 if these are
  /// unknown.
  [[nodiscard]] int node_num() const;
};

/// Reads the environment of PaddleCloud (PADDLE_PSERVERS_IP_PORT_LIST, TRAINING_ROLE, ...). Without
/// a list of servers, the result is a single worker that is not distributed.
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

/// Errors: kInvalidArgument for a role other than worker and server, ids out of range, no servers
/// or workers, empty or repeated endpoints, or a number of endpoints that differs from worker_num.
StatusOr<RoleMaker> user_defined_role(const UserDefinedRole& arguments);

/// A role in a job with only workers. Errors: kInvalidArgument as above.
StatusOr<RoleMaker> user_defined_collective_role(int current_id,
                                                 const std::vector<std::string>& endpoints);

/// Reads the older environment (GeneralRoleMaker): PADDLE_TRAINER_ENDPOINTS gives the number of
/// workers; a server's id is PADDLE_PSERVER_ID or the index of POD_IP:PADDLE_PORT. With
/// PADDLE_IS_BARRIER_ALL_ROLE=0 processes do not wait for each other. Errors: as
/// role_from_environment().
StatusOr<RoleMaker> general_role_from_environment(const EnvironmentReader& read);

/// Two processes per node, as in the original's MPISymetricRoleMaker: even ranks are servers, odd
/// ranks are workers; ids are rank / 2.
/// \param endpoints  host:port of all ranks, in order. Workers use theirs only to exchange dense
///                   gradients
/// Errors: kInvalidArgument for an odd number of ranks, a rank out of range, or two servers with
/// one endpoint.
StatusOr<RoleMaker> symmetric_role(int rank, const std::vector<std::string>& endpoints);

/// The same, but ranks exchange their endpoints, for example by MPI (executor/collective). The
/// original draws one port for all servers from a seed, which may be the same in two jobs; here
/// each server has its own endpoint.
/// Errors: kInvalidArgument for a malformed endpoint; those of the exchange.
StatusOr<RoleMaker> gather_symmetric_role(io::Gather& ranks, const std::string& endpoint);

}  // namespace millrace::fleet
