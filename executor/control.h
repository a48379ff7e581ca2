#pragma once

#include <functional>

#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/tensor/scope.h"
#include "kernels/kernel.h"

namespace millrace::executor {

class BlockRunner;

/// What an op sees that runs other blocks or looks at scopes: its arguments, the scope its block
/// runs in, and the runner of its block.
struct ControlContext {
  kernels::KernelContext args;
  Scope& scope;
  BlockRunner& runner;
};

/// A control op, ready to run; one thread at a time.
using Control = std::function<Status(ControlContext&)>;

/// Makes a control op from its op. Errors: kInvalidProgram, kUnimplemented.
using ControlMaker = StatusOr<Control> (*)(const kernels::KernelSetup&, BlockRunner&);

/// Ops that the executor runs itself because they need scopes or sub-blocks.
class ControlRegistry {
 public:
  void add(llvm::StringRef type, ControlMaker maker) { makers_[type] = maker; }
  /// Null if there is none.
  [[nodiscard]] ControlMaker find(llvm::StringRef type) const { return makers_.lookup(type); }

 private:
  llvm::StringMap<ControlMaker> makers_;
};

/// Every control op of this build.
void add_standard_controls(ControlRegistry& registry);

// A function a file of executor/control.
void add_conditional_block(ControlRegistry& registry);
void add_feed_fetch(ControlRegistry& registry);
void add_files(ControlRegistry& registry);
void add_recurrent(ControlRegistry& registry);
void add_while(ControlRegistry& registry);

}  // namespace millrace::executor
