#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/collective/rings.h"
#include "tools/common/tool.h"

namespace millrace::tools {

/// Options of a process that is one of several ranks. Values that are not given are read from the
/// environment that launch, mpirun, Slurm or torchrun set.
struct RankFlags {
  int rank = -1;
  std::string endpoints;  ///< of all ranks
  std::string engine = "auto";
  std::string rendezvous;  ///< folder where ranks find each other, instead of a TCP store
  int64_t wait_ms = 600'000;
  int64_t join_ms = 120'000;
  bool data_parallel = false;
};

void add_rank_options(CLI::App& app, RankFlags& flags);

/// The process groups of this process with the other ranks of its job; a group is connected when a
/// program first needs it. Null for a process without peers. Errors: kInvalidArgument, kUsage.
/// \param job_key  file of --job-key; may be empty
StatusOr<std::shared_ptr<executor::Rings>> rings_of_job(const RankFlags& flags,
                                                        const std::string& job_key);

/// The same for a trainer of a job whose trainers average dense gradients by all-reduce.
/// \param endpoints  of all trainers as the files of the job state them; those of --endpoints and
///                   of the launcher take precedence
/// Errors: kUsage if no endpoints are known, or others than that many; those of opening a group of
/// one.
StatusOr<std::shared_ptr<executor::Rings>> rings_of_trainer(
    const RankFlags& flags, const std::string& job_key, const std::vector<std::string>& endpoints,
    int trainer, int trainers);

/// The file of a rank: replaces {rank}, as in "out.{rank}.npz".
std::string of_rank(std::string path, int rank);

}  // namespace millrace::tools
