#pragma once

#include <string>
#include <vector>

#include <llvm/ADT/StringMap.h>

#include "framework/base/status.h"
#include "framework/block.h"

namespace millrace::transpiler {

/// The update of one parameter, and the gradient that reaches it.
struct UpdateFlow {
  Op* update = nullptr;
  /// The var that the trainers send: the update's gradient before the ops that run on the servers.
  std::string gradient;
  VarKind kind = VarKind::kLodTensor;  ///< of the gradient, derived from the op that computes it
  bool has_server_ops = false;         ///< there are ops between the sent gradient and the update
};

/// An op of the optimize part that runs on the server that holds its parameter.
struct ServerOp {
  Op* op = nullptr;
  std::string param;
};

/// The optimize part of a program, divided between trainer and servers.
struct OptimizePart {
  std::vector<Op*> trainer;             ///< clipping and other ops that need several gradients
  std::vector<ServerOp> server;         ///< regularization, updates and what follows them
  llvm::StringMap<UpdateFlow> updates;  ///< by parameter
};

/// How the optimize part is divided.
struct DivideOptions {
  /// Clipping stays on the trainers. False: clipping by value runs on the servers after the
  /// gradients are merged; any other clipping is rejected.
  bool clip_on_trainer = true;
  /// Regularization runs on the servers. False: on the trainers, like clipping.
  bool decay_on_servers = true;
};

/// Divides the ops of role Optimize of block 0 between trainer and servers by data flow from the
/// gradients to the updates. Name scopes matter only where the original checks one (`@CLIP`).
///
/// The walk starts at the gradient of each update and goes backwards. Ops that add a term of the
/// parameter to the gradient (regularization) run on the server. The first other op, and everything
/// it needs, stays on the trainer. So no update can bypass an op.
/// Errors: kInvalidProgram for ops without a parameter; kUnimplemented if an op needs values of
/// both sides, if a parameter is updated twice, or if an op on the trainer needs a value that only
/// servers compute.
StatusOr<OptimizePart> divide_updates(Block& block, const DivideOptions& options);

}  // namespace millrace::transpiler
