#pragma once

#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ps/communicator/comm_context.h"

/// Programs that fetch the results of a fleet job from its servers.
/// Source: spec/distributed_io.md section 3 (ParameterServerRuntime, FleetTranspiler).
namespace millrace::fleet {

/// Names of the state that an optimizer keeps for a parameter.
struct OptimizerState {
  std::vector<std::string> shaped;  ///< shaped and split like the parameter
  std::vector<std::string> scalar;  ///< beta powers, equal on all servers
};

/// Errors: kInvalidArgument for an optimizer that fleet does not support, listing those that it
/// does.
StatusOr<OptimizerState> optimizer_state(llvm::StringRef type, const std::string& param);

/// The class that saves; the checkpoint_notify ops of the two classes differ.
enum class FleetForm { kRuntime, kTranspiler };

/// The contexts that a worker's communicator receives, by context key.
struct FleetContexts {
  ps::CommContexts dense;        ///< whole on one server
  ps::CommContexts sparse;       ///< tables whose rows are on all servers
  ps::CommContexts distributed;  ///< tables that are only on servers
};

/// Settings of one save.
struct FleetSaveRequest {
  const Program* origin = nullptr;  ///< has the optimizers and the shapes of their state
  FleetContexts contexts;
  std::string directory;
  int worker = 0;
  int servers = 1;
  int mode = 0;  ///< mode of checkpoint_notify; only form kRuntime
  FleetForm form = FleetForm::kRuntime;
};

/// Programs to run for a save. Null if there is nothing to do.
struct FleetSavePlan {
  std::unique_ptr<Program> dense;        ///< a recv_save for each parameter and each of its states
  std::unique_ptr<Program> sparse;       ///< likewise, for rows distributed by id
  std::unique_ptr<Program> distributed;  ///< a checkpoint_notify for each table
  std::vector<std::string> received;     ///< files that the first two write, in order
  std::vector<std::string> tables;       ///< tables that servers write themselves
};

/// Errors: kInvalidArgument for a context of several vars, an unknown optimizer, an empty
/// directory, or a context whose slices are inconsistent; kNotFound with the var for a parameter
/// without an optimizer, or for a parameter or optimizer state that the origin program does not
/// declare.
StatusOr<FleetSavePlan> make_fleet_save_programs(const FleetSaveRequest& request);

/// The vars of a program that remain to be saved: persistable ones that are neither in `saved` nor
/// gradients, learning rates, feeds, fetches or readers. Sorted by name.
std::vector<const Var*> remaining_vars(const Program& program, llvm::ArrayRef<std::string> saved);

/// Strips the suffix of a var: "w" for "w.block0" and "w.trainer_1".
llvm::StringRef base_var_name(llvm::StringRef name);

}  // namespace millrace::fleet
