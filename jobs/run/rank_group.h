#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/collective/open_group.h"
#include "executor/collective/rings.h"
#include "fleet/launch/job_environment.h"
#include "framework/base/status.h"

namespace millrace::jobs {

/// How a process finds the other ranks of its job. What is not given is read from the environment
/// that launch, mpirun, Slurm or torchrun set.
struct RankOptions {
  int rank = -1;                       ///< below 0: that of the environment
  std::vector<std::string> endpoints;  ///< of all ranks, in order
  executor::GroupEngine engine = executor::GroupEngine::kAuto;
  std::string rendezvous;     ///< folder where ranks find each other, instead of a TCP store
  int64_t wait_ms = 600'000;  ///< longest wait for another rank
  int64_t join_ms = 120'000;  ///< until all ranks have connected
};

/// What options and environment say about the group; rank and, without endpoints, number of ranks
/// are those of the environment. Without the key, which one process needs not have.
executor::GroupOptions group_options(const RankOptions& options, const fleet::JobEnvironment& job);

/// The groups of ranks that are opened as the options say. The ranks meet when a group is needed.
std::shared_ptr<executor::Rings> make_rings(const executor::GroupOptions& options);

/// The key of the job: of the file, or, if that is empty, of the file that `launch --job-key` has
/// put into the environment. \returns null if there is none. Errors: those of JobKey::read().
StatusOr<std::shared_ptr<const io::JobKey>> read_job_key(const std::string& file);

/// The groups of this process with the other ranks of its job. Null for a process without peers,
/// and for a server. \param job_key  of read_job_key()
/// Errors: kInvalidArgument for a wrong environment; kUsage for a rank out of range.
StatusOr<std::shared_ptr<executor::Rings>> rings_of_job(const RankOptions& options,
                                                        const std::string& job_key);

}  // namespace millrace::jobs
