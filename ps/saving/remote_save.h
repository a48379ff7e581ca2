#pragma once

#include <memory>
#include <string>

#include "executor/executor.h"
#include "executor/standard_runtime.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "ps/ops/trainer_ops.h"
#include "ps/saving/distributed_save.h"

namespace millrace::ps {

/// Runs programs with recv_save and checkpoint_notify ops on a trainer.
class RemoteSave {
 public:
  /// \param trainer  must outlive the object
  /// \param root     folder that file names are relative to
  RemoteSave(const SavingTrainer& trainer, const std::string& root)
      : trainer_(trainer), runtime_(executor::make_runtime(root)) {
    add_trainer_controls(runtime_->controls, trainer.link, root, saved_);
  }
  /// Errors: those of the ops.
  Status run(const Program& program) {
    executor::ExecutorOptions options = trainer_.options;
    options.optimize = false;
    MILLRACE_ASSIGN_OR_RETURN(const auto prepared,
                              executor::Executor(runtime_, options).prepare(program, scope_));
    std::vector<Value> none;
    return prepared->run({}, {}, none);
  }
  [[nodiscard]] const ops::OpRegistry& ops() const { return *runtime_->ops; }
  /// Files that servers have written on their own disks.
  [[nodiscard]] const SavedParts& saved() const { return *saved_; }

 private:
  const SavingTrainer& trainer_;
  std::shared_ptr<executor::Runtime> runtime_;
  std::shared_ptr<SavedParts> saved_ = std::make_shared<SavedParts>();
  Scope scope_;
};

}  // namespace millrace::ps
