#pragma once

#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "executor/block_runner.h"
#include "framework/base/status.h"
#include "framework/tensor/scope.h"

namespace millrace::executor {

/// The scopes in which a control op runs its sub-block, one per time step. They are kept between
/// runs, with the memory of their values and the name bindings, so that later runs look up and
/// allocate nothing.
///
/// They are attached to the scope that the op runs in and are destroyed with it. Thread-safety: one
/// thread at a time.
class StepRuns {
 public:
  /// One time step of the sub-block.
  struct Step {
    std::shared_ptr<Scope> scope;
    BlockRunner::Binding binding;
  };

  /// The scopes of one op in one scope.
  /// \param owner  lives as long as the op, and is used only by it
  static StepRuns& of(Scope& scope, const std::shared_ptr<void>& owner);

  /// Time step i in a scope inside outer, ready to run. Created and bound at first use; later,
  /// content left by earlier runs is dropped. References stay valid until the next call.
  /// \param beside  scope of the forward time step if this is a gradient
  /// \param linked  names whose values the caller sets in the scope of the time step before it
  /// runs; the block need not declare them
  Step& begin(size_t i, const BlockRunner& runner, Scope& outer,
              const std::shared_ptr<Scope>& beside = nullptr,
              llvm::ArrayRef<std::string> linked = {});

 private:
  std::weak_ptr<void> owner_;
  std::vector<Step> steps_;
};

/// Compiles the sub-block that an attribute of the op refers to.
StatusOr<BlockRunner*> sub_block_of(const kernels::KernelSetup& setup, BlockRunner& runner);

}  // namespace millrace::executor
