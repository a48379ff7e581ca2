#pragma once

#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ps/communicator/comm_context.h"

/// Programs that fetch what a fleet job has trained from its servers.
/// Source: spec/distributed_io.md section 3, seed 002 (ParameterServerRuntime, FleetTranspiler).
namespace millrace::fleet {

/// Names of what an optimizer keeps beside a parameter.
struct OptimizerState {
  std::vector<std::string> shaped;  ///< shaped and cut as the parameter
  std::vector<std::string> scalar;  ///< beta powers, equal on all servers
};

/// Errors: kInvalidArgument for an optimizer that fleet does not know, with those that it does.
StatusOr<OptimizerState> optimizer_state(llvm::StringRef type, const std::string& param);

/// Which of the two classes saves; their checkpoint_notify differ.
enum class FleetForm { kRuntime, kTranspiler };

/// What a worker receives, as its communicator knows it: context key to pieces.
struct FleetContexts {
  ps::CommContexts dense;        ///< whole on one server
  ps::CommContexts sparse;       ///< tables in rows of all servers
  ps::CommContexts distributed;  ///< tables that only servers have
};

/// One save.
struct FleetSaveRequest {
  const Program* origin = nullptr;  ///< with the optimizers and the shapes of what they keep
  FleetContexts contexts;
  std::string directory;
  int worker = 0;
  int servers = 1;
  int mode = 0;  ///< of checkpoint_notify; form kRuntime only
  FleetForm form = FleetForm::kRuntime;
};

/// What is run to save it. Programs are null where there is nothing to do.
struct FleetSavePlan {
  std::unique_ptr<Program> dense;        ///< a recv_save for each parameter and each of its states
  std::unique_ptr<Program> sparse;       ///< likewise, of rows that are dealt by id
  std::unique_ptr<Program> distributed;  ///< a checkpoint_notify for each table
  std::vector<std::string> received;     ///< files that the first two write, in order
  std::vector<std::string> tables;       ///< that servers write themselves
};

/// Errors: kInvalidArgument for a context of several vars, an unknown optimizer, and for an empty
/// directory; kNotFound with the var for a parameter without optimizer, and for one or a state of
/// it that the origin program does not declare; kInvalidArgument for a context whose pieces do not
/// fit.
StatusOr<FleetSavePlan> make_fleet_save_programs(const FleetSaveRequest& request);

/// The vars of a program that are left to save: persistable ones that are neither saved yet nor
/// gradients, learning rates, feeds, fetches or readers. Sorted by name.
std::vector<const Var*> remaining_vars(const Program& program, llvm::ArrayRef<std::string> saved);

/// "w" for "w.block0" and "w.trainer_1".
llvm::StringRef base_var_name(llvm::StringRef name);

}  // namespace millrace::fleet
