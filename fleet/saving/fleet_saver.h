#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "executor/executor.h"
#include "executor/parallel/parallel_executor.h"
#include "fleet/saving/save_programs.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "ps/saving/distributed_save.h"

/// save_persistables and save_inference_model of the original's fleet classes.
/// Source: spec/distributed_io.md sections 3 and 6, spec/fleet.md section 12.
namespace millrace::fleet {

/// The original's fleet classes, oldest first.
enum class FleetClass {
  kOldest,      ///< fluid's first fleet: saves like a single process
  kTranspiler,  ///< DistributedTranspiler: refuses programs that are not distributed
  kContexts,    ///< FleetTranspiler: saves by the contexts of its communicator
  kRuntime,     ///< ParameterServerRuntime: likewise, with `mode`
};

/// The executor argument of a save. The original accepts only an Executor.
using SavingExecutor = std::variant<const executor::Executor*, const executor::ParallelExecutor*>;
/// The program argument of a save; monostate means the program of the fleet object. A prepared
/// program is refused, as the original refuses a CompiledProgram.
using SavedProgram = std::variant<std::monostate, const Program*, const executor::PreparedProgram*>;

/// State of a fleet object that is needed to save its job.
struct SavedJob {
  FleetClass form = FleetClass::kRuntime;
  ps::SavingTrainer trainer;  ///< with the trainer program, its values and the link to the servers
  const Program* origin = nullptr;  ///< before it was transpiled
  FleetContexts contexts;           ///< kContexts and kRuntime
  int servers = 1;
  /// Updates the trainer's values, as Communicator::recv(); may be null.
  std::function<Status()> receive;
};

/// Destination and options of a save; see ps::DistributedSaveOptions.
struct FleetSaveTarget {
  std::string root;
  std::string folder;
  Replace replace = Replace::kNo;
  int mode = 0;  ///< kRuntime
};

/// Saves the results of a fleet job. Call it on the first worker when all workers are done.
class FleetSaver {
 public:
  /// \param job  must outlive the object
  explicit FleetSaver(const SavedJob& job) : job_(job) {}

  /// Saves every persistable var of a program. Vars that servers hold are fetched from them, with
  /// the state of their optimizers, and written to one file each, even if they are split. The rest
  /// come from the trainer.
  /// Errors: kInvalidArgument for a ParallelExecutor, no executor, a compiled program, and, for
  /// kTranspiler, a program that is not distributed; those of make_fleet_save_programs(), of the
  /// calls and of writing.
  Status save_persistables(const SavingExecutor& executor, const FleetSaveTarget& target,
                           const SavedProgram& program = {}) const;

  /// Saves the part of a program that computes the fetches. Without a program argument: of the
  /// origin program, with exactly the vars that it reads, fetched from the servers. Errors: as
  /// save_persistables(); those of executor::save_inference_model().
  Status save_inference_model(const SavingExecutor& executor, const FleetSaveTarget& target,
                              const std::vector<std::string>& feeds,
                              const std::vector<std::string>& fetches,
                              const SavedProgram& program = {}) const;

 private:
  [[nodiscard]] Status check(const char* function, const SavingExecutor& executor,
                             const SavedProgram& program) const;
  [[nodiscard]] const Program& program_or_own(const SavedProgram& program) const;
  [[nodiscard]] Status save_by_contexts(const FleetSaveTarget& target,
                                        const Program& program) const;

  const SavedJob& job_;
};

}  // namespace millrace::fleet
