#pragma once

#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "executor/block_runner.h"
#include "framework/base/status.h"
#include "framework/tensor/scope.h"

namespace millrace::executor {

/// The scopes in which a control op runs its sub-block, one a step. They stay from run to run, with
/// the memory of their values and the places of names, so that later runs look up and allocate
/// nothing.
///
/// They are attached to the scope that the op runs in and die with it. Thread-safety: one thread at
/// a time.
class StepRuns {
 public:
  /// One step of the sub-block.
  struct Step {
    std::shared_ptr<Scope> scope;
    BlockRunner::Binding binding;
  };

  /// Those of one op in one scope.
  /// \param owner  lives as long as the op, and belongs to it alone
  static StepRuns& of(Scope& scope, const std::shared_ptr<void>& owner);

  /// Step i in a scope inside outer, ready to run: made and bound at first use, else what earlier
  /// runs left behind is forgotten. References stay valid until the next call.
  /// \param beside  scope of the forward step if this is a gradient
  /// \param linked  names that the caller gives values to in the scope of the step before it runs,
  ///                which the block may not declare
  Step& begin(size_t i, const BlockRunner& runner, Scope& outer,
              const std::shared_ptr<Scope>& beside = nullptr,
              llvm::ArrayRef<std::string> linked = {});

 private:
  std::weak_ptr<void> owner_;
  std::vector<Step> steps_;
};

/// Compiles the sub-block that an attribute names.
StatusOr<BlockRunner*> sub_block_of(const kernels::KernelSetup& setup, BlockRunner& runner);

}  // namespace millrace::executor
