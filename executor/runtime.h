#pragma once

#include <functional>
#include <memory>
#include <string>

#include <llvm/ADT/StringMap.h>

#include "executor/collective/rings.h"
#include "executor/control.h"
#include "kernels/registry.h"
#include "ops/registry.h"

namespace millrace::executor {

/// A KernelMaker that holds state, for ops that are registered at run time.
using KernelFactory = std::function<StatusOr<kernels::Kernel>(const kernels::KernelSetup&)>;

/// Everything a run looks up by op type: schemas, kernels, control ops. Immutable once made, so any
/// number of executors may share one. Thread-safety: concurrent readers.
struct Runtime {
  std::unique_ptr<const ops::OpRegistry> ops;
  std::unique_ptr<const kernels::KernelRegistry> kernels;
  ControlRegistry controls;
  /// Kernels of the user's own (executor/custom_op.h), by op type.
  llvm::StringMap<KernelFactory> custom_kernels;
  /// Folder that load, save and the like may use; empty: they are refused.
  std::string files_root;
  /// Groups of ranks for collective ops; null: the process is alone.
  std::shared_ptr<Rings> rings;
};

/// Every CPU kernel of this build: those of kernels/, and those that exchange values between
/// devices.
std::unique_ptr<const kernels::KernelRegistry> executor_kernels();

/// A runtime with every op and CPU kernel of this build, to which a caller adds control ops of its
/// own before anybody uses it.
std::shared_ptr<Runtime> make_runtime(std::string files_root = {},
                                      std::shared_ptr<Rings> rings = nullptr);

/// The same for those who add nothing.
std::shared_ptr<const Runtime> standard_runtime(std::string files_root = {},
                                                std::shared_ptr<Rings> rings = nullptr);

}  // namespace millrace::executor
