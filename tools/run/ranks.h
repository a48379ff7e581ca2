#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/collective/rings.h"
#include "framework/program.h"
#include "tools/common/tool.h"

namespace millrace::tools {

/// Options of a process that is one of several ranks; what is not given comes from the environment
/// that launch, mpirun, Slurm or torchrun set.
struct RankFlags {
  int rank = -1;
  std::string endpoints;  ///< of all ranks
  std::string engine = "auto";
  std::string rendezvous;  ///< folder in which ranks find each other, instead of a TCP store
  int64_t wait_ms = 600'000;
  int64_t join_ms = 120'000;
  bool data_parallel = false;
};

void add_rank_options(CLI::App& app, RankFlags& flags);

/// The groups that this process makes with the other ranks of its job, which meet when a program
/// needs them; null for a process that is alone. Errors: kInvalidArgument, kUsage.
StatusOr<std::shared_ptr<executor::Rings>> rings_of_job(const RankFlags& flags);

/// "out.{rank}.npz" as the file of a rank.
std::string of_rank(std::string path, int rank);

/// True if the program exchanges values with other ranks by its own ops.
bool has_collective_ops(const Program& program);
/// The op of a startup program of mode nccl2 that makes ids of groups: the main program is then run
/// data-parallel over all ranks. Null if there is none.
const Op* find_group_ids(const Program& startup);

}  // namespace millrace::tools
