#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/collective/collective_group.h"
#include "executor/collective/store.h"

namespace millrace::executor {

/// Groups of processes, by engine. Each engine is in a module of its name
/// (framework/base/module.h); opening a group also returns the errors of load_module(). A build
/// without the library of an engine has a substitute source that returns kUnimplemented.

/// Where a rank of a Gloo group listens, and how it finds the others.
struct GlooPlace {
  std::shared_ptr<Store> store;    ///< used by the thread that uses the group
  std::string host = "127.0.0.1";  ///< address of this rank that the others can reach
  std::string key = "world";       ///< of the group in the store
  /// Ranks of the members in the group of all; filled in by open_gloo_group().
  std::vector<int> ranks = {};
  int64_t join_timeout_ms = 120'000;  ///< until all ranks have joined
};

/// Whether this build has the engine.
bool has_gloo();
/// Joins the group; returns when all ranks have. Errors: kDistributed if they do not in time.
StatusOr<std::unique_ptr<CollectiveGroup>> open_gloo_group(const GroupSettings& settings,
                                                           const GlooPlace& place);

/// Interface of the module "gloo".
struct GlooEngine {
  decltype(&open_gloo_group) open;
};

/// Whether this build has the engine.
bool has_mpi();
/// A group of the processes started by mpirun; rank and size of the settings are ignored. A process
/// can open only one such group. Errors: kDistributed if MPI does not start.
StatusOr<std::unique_ptr<CollectiveGroup>> open_mpi_group(const GroupSettings& settings);
/// Interface of the module "mpi".
struct MpiEngine {
  decltype(&open_mpi_group) open;
};

}  // namespace millrace::executor
