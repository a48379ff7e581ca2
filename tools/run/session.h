#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/collective/collective_group.h"
#include "executor/executor.h"
#include "executor/parallel/parallel_executor.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "io/npz.h"
#include "tools/run/options.h"

namespace millrace::tools {

/// A program with its scope, ready to run: parameters loaded, startup program run.
struct Session {
  std::string name;               ///< the program's file, for messages
  std::string params;             ///< source of its parameters; may be empty
  std::unique_ptr<Program> read;  ///< the program until it is prepared
  std::unique_ptr<Scope> scope;
  std::unique_ptr<executor::TrainerLink> link;  ///< to the other processes, or null
  int rank = 0;                                 ///< among several processes
  /// The ranks that run steps together with this one because they exchange values; null: no other
  /// ranks.
  executor::CollectiveGroup* ranks = nullptr;
  std::unique_ptr<executor::PreparedProgram> prepared;   ///< null if parallel is set
  std::unique_ptr<executor::ParallelExecutor> parallel;  ///< several devices
  int64_t first_step = 0;        ///< steps that were done when the checkpoint was saved
  std::vector<uint64_t> random;  ///< positions of the random numbers by device, from a checkpoint
  double load_ms = 0;            ///< reading program and parameters
  double plan_ms = 0;            ///< compiling

  /// The program as it was read.
  [[nodiscard]] const Program& program() const { return read ? *read : prepared->given(); }
};

/// Opens what the options name. Errors: those of readers, the startup program and compilation.
StatusOr<Session> open_session(const Tool& tool, const RunOptions& options,
                               const std::shared_ptr<const executor::Runtime>& runtime);

/// Names of --fetch, or the fetch targets of the program.
std::vector<std::string> wanted_fetches(const RunOptions& options, const Session& session);

/// The position of the random number generator of every device.
std::vector<uint64_t> random_positions(const Session& session);
/// Continues from such positions. Returns false and changes nothing if the number of devices
/// differs.
bool set_random_positions(Session& session, const std::vector<uint64_t>& positions);

/// True for a persistable var that belongs to the state of a program, not to feeding and fetching.
bool is_state_var(const Var& var);

/// All persistable vars of block 0 that hold a value, feed and fetch holders left out.
StatusOr<executor::NamedValues> persistables(const Session& session);

}  // namespace millrace::tools
