#pragma once

#include <string>
#include <vector>

#include <llvm/ADT/StringMap.h>

#include "framework/base/status.h"
#include "framework/block.h"

namespace millrace::transpiler {

/// The update of one parameter, and what feeds it.
struct UpdateFlow {
  Op* update = nullptr;
  /// The value that the trainers send: the update's gradient before the servers' own ops.
  std::string gradient;
  VarKind kind = VarKind::kLodTensor;  ///< of the gradient, told by what computes it
  bool has_server_ops = false;         ///< ops stand between the sent gradient and the update
};

/// An op of the optimize part that runs where its parameter lives.
struct ServerOp {
  Op* op = nullptr;
  std::string param;
};

/// The optimize part of a program, divided.
struct OptimizePart {
  std::vector<Op*> trainer;             ///< clipping and whatever else needs more than one gradient
  std::vector<ServerOp> server;         /// regularisation, updates and what follows them
  llvm::StringMap<UpdateFlow> updates;  ///< by parameter
};

/// How the optimize part is divided.
struct DivideOptions {
  /// Clipping stays on the trainers. False: clipping by value runs on the servers, behind the
  /// merge; any other clipping is refused.
  bool clip_on_trainer = true;
  /// Regularisation runs on the servers. False: on the trainers, as clipping.
  bool decay_on_servers = true;
};

/// Divides the ops of role Optimize of block 0 by what feeds the updates; name scopes count only
/// where the original looks at one (`@CLIP`).
///
/// Going back from the gradient of each update, ops that add a term of the parameter to the
/// gradient (regularisation) go to the server; the first other op, and all it needs, stays on the
/// trainer. So no update can skip an op.
/// Errors: kInvalidProgram for ops that state no parameter, kUnimplemented where an op needs values
/// of both sides, a parameter is updated twice, or a reader on the trainer needs what only servers
/// compute.
StatusOr<OptimizePart> divide_updates(Block& block, const DivideOptions& options);

}  // namespace millrace::transpiler
