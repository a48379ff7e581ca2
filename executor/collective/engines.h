#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/collective/collective_group.h"
#include "executor/collective/store.h"

namespace millrace::executor {

/// Groups of processes, by engine. Engines stand in modules of their names
/// (framework/base/module.h): opening a group raises the errors of load_module(), too. A build
/// without the library of an engine has a source in its place that raises kUnimplemented.

/// Where a rank of a Gloo group listens, and where it finds the others.
struct GlooPlace {
  std::shared_ptr<Store> store;    ///< used by the thread that uses the group
  std::string host = "127.0.0.1";  ///< own address that the others reach
  std::string key = "world";       ///< of the group in the store
  /// Of the members, in the group of all; filled in by open_gloo_group().
  std::vector<int> ranks = {};
  int64_t join_timeout_ms = 120'000;
};

bool has_gloo();
StatusOr<std::unique_ptr<CollectiveGroup>> open_gloo_group(const GroupSettings& settings,
                                                           const GlooPlace& place);

/// What the module "gloo" does.
struct GlooEngine {
  decltype(&open_gloo_group) open;
};

bool has_mpi();
/// The processes that mpirun has started; rank and size of the settings are not looked at. A
/// process can open one such group in its life. Errors: kDistributed where MPI does not start.
StatusOr<std::unique_ptr<CollectiveGroup>> open_mpi_group(const GroupSettings& settings);
/// What the module "mpi" does.
struct MpiEngine {
  decltype(&open_mpi_group) open;
};

}  // namespace millrace::executor
