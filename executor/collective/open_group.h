#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/collective/collective_group.h"
#include "io/job_key.h"

namespace millrace::executor {

/// The engine that transfers values between processes.
enum class GroupEngine {
  kAuto,  ///< shm if all ranks are on one machine; else mpi under mpirun, otherwise gloo
  kShm,   ///< shared memory of one machine
  kGloo,  ///< Gloo over TCP
  kMpi,   ///< MPI; needs mpirun
  kNccl,  ///< NCCL for values on GPUs (Rings::use_devices()); for all others like kAuto
};

/// "auto", "shm", "gloo", "mpi" or "nccl". Errors: kInvalidArgument.
StatusOr<GroupEngine> parse_engine(const std::string& name);

/// How a process finds the others of its job.
struct GroupOptions {
  GroupSettings settings;  ///< rank, size, deadline
  GroupEngine engine = GroupEngine::kAuto;
  bool by_mpirun = false;  ///< this process was started by mpirun
  /// host:port of every rank. Rank 0 serves the store, by which the ranks find each other, at its
  /// endpoint; Gloo listens at the host of this rank's endpoint.
  std::vector<std::string> endpoints;
  /// Folder that all ranks can access, for a store of files instead; then endpoints are not needed
  /// (engine shm) or only their hosts are used.
  std::string folder;
  /// Key of the job, which the store of endpoints requires. Null: none.
  std::shared_ptr<const io::JobKey> key = nullptr;
  std::string job;                    ///< name of the job; processes of other jobs are rejected
  int64_t join_timeout_ms = 120'000;  ///< until all ranks have joined
};

/// Joins the group of all ranks of a job; every rank calls it, at any time.
/// Errors: kInvalidArgument for inconsistent options; kDistributed if the others do not join in
/// time; kResource for a port in use; kUnimplemented for an engine that this build lacks.
StatusOr<std::unique_ptr<CollectiveGroup>> open_group(const GroupOptions& options);

}  // namespace millrace::executor
