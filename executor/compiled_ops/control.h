#pragma once

#include <functional>
#include <utility>

#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/tensor/scope.h"
#include "kernels/kernel.h"

namespace millrace::executor {

class BlockRunner;

/// The context of an op that runs other blocks or accesses scopes: its arguments, the scope its
/// block runs in, and the runner of its block.
struct ControlContext {
  kernels::KernelContext args;
  Scope& scope;
  BlockRunner& runner;
};

/// A control op, ready to run; one thread at a time.
using Control = std::function<Status(ControlContext&)>;

/// Creates a control op from its op. It may hold other data that such ops need, such as connections
/// to servers; several threads may call it at once. Errors: kInvalidProgram, kUnimplemented.
using ControlMaker = std::function<StatusOr<Control>(const kernels::KernelSetup&, BlockRunner&)>;

/// Ops that the executor runs without a kernel because they need scopes, sub-blocks, or peers.
class ControlRegistry {
 public:
  /// Adds an op type. Aborts if the type was added before, which is a bug of the caller.
  void add(llvm::StringRef type, ControlMaker maker);
  /// Calls a function before each run of the ops of a type, which fail with its error. Aborts if
  /// the type was not added.
  void run_before(llvm::StringRef type, std::function<Status()> first);
  /// Null if there is none. Valid as long as the registry.
  [[nodiscard]] const ControlMaker* find(llvm::StringRef type) const {
    const auto found = makers_.find(type);
    return found == makers_.end() ? nullptr : &found->getValue();
  }

 private:
  llvm::StringMap<ControlMaker> makers_;
};

/// Adds every control op of this build.
void add_standard_controls(ControlRegistry& registry);

// One function per file of executor/control.
void add_collective(ControlRegistry& registry);
void add_conditional_block(ControlRegistry& registry);
void add_feed_fetch(ControlRegistry& registry);
void add_files(ControlRegistry& registry);
void add_recurrent(ControlRegistry& registry);
void add_ring_setup(ControlRegistry& registry);
void add_while(ControlRegistry& registry);

}  // namespace millrace::executor
