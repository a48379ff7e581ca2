#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/collective/collective_group.h"

namespace millrace::executor {

/// What carries the values between processes.
enum class GroupEngine {
  kAuto,  ///< shm where all ranks are on one machine; else mpi under mpirun, gloo without
  kShm,   ///< shared memory of one machine
  kGloo,  ///< Gloo over TCP
  kMpi,   ///< MPI; needs mpirun
  kNccl,  ///< NCCL for values on GPUs (Rings::use_devices()); for all others as kAuto
};

/// "auto", "shm", "gloo", "mpi" or "nccl". Errors: kInvalidArgument.
StatusOr<GroupEngine> parse_engine(const std::string& name);

/// How a process finds the others of its job.
struct GroupOptions {
  GroupSettings settings;
  GroupEngine engine = GroupEngine::kAuto;
  bool by_mpirun = false;  ///< mpirun has started this process
  /// host:port of every rank. Rank 0 keeps the store in which the ranks find each other at its
  /// endpoint; Gloo listens at the host of the own one.
  std::vector<std::string> endpoints;
  /// Folder that all ranks see, for a store of files instead; needs no endpoints (engine shm) or
  /// only their hosts.
  std::string folder;
  std::string job;  ///< processes of other jobs are refused
  int64_t join_timeout_ms = 120'000;
};

/// Joins the group of all ranks of a job; every rank calls it, in any order of time.
/// Errors: kInvalidArgument for options that do not fit; kDistributed where the others do not come
/// in time; kResource for a port in use; kUnimplemented for an engine that this build lacks.
StatusOr<std::unique_ptr<CollectiveGroup>> open_group(const GroupOptions& options);

}  // namespace millrace::executor
