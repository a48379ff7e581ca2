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
  std::string params;             ///< where its parameters are read from; may be empty
  std::unique_ptr<Program> read;  ///< the program until it is prepared
  std::unique_ptr<Scope> scope;
  std::unique_ptr<executor::TrainerLink> link;  ///< to the other processes, or null
  int rank = 0;                                 ///< among several processes
  /// Those that step together with this one, as they exchange values; null: this one is alone.
  executor::CollectiveGroup* ranks = nullptr;
  std::unique_ptr<executor::PreparedProgram> prepared;   ///< null if parallel is set
  std::unique_ptr<executor::ParallelExecutor> parallel;  ///< several devices
  int64_t first_step = 0;                                ///< steps that a checkpoint had done
  std::vector<uint64_t> random;  ///< positions of random numbers by device, of a checkpoint
  double load_ms = 0;            ///< reading program and parameters
  double plan_ms = 0;            ///< compiling

  /// The program as it was read.
  [[nodiscard]] const Program& program() const { return read ? *read : prepared->given(); }
};

/// Opens what the options name. Errors: those of readers, the startup program and compilation.
StatusOr<Session> open_session(const Tool& tool, const RunOptions& options,
                               const std::shared_ptr<const executor::Runtime>& runtime);

/// Values of --feed and --lod. Errors: kInvalidData, kNotFound, kUsage.
StatusOr<executor::NamedValues> read_feeds(const RunOptions& options, const Program& program);

/// Names of --fetch, else the program's own fetch targets.
std::vector<std::string> wanted_fetches(const RunOptions& options, const Session& session);

/// Where the random numbers of every device stand, and going on from there. A list of another
/// length changes nothing and is false.
std::vector<uint64_t> random_positions(const Session& session);
bool set_random_positions(Session& session, const std::vector<uint64_t>& positions);

/// True for a persistable var that belongs to the state of a program, not to feeding and fetching.
bool is_state_var(const Var& var);

/// All persistable vars of block 0 that hold a value, feed and fetch holders left out.
StatusOr<executor::NamedValues> persistables(const Session& session);

}  // namespace millrace::tools
