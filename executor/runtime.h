#pragma once

#include <functional>
#include <memory>
#include <string>

#include <llvm/ADT/StringMap.h>

#include "executor/collective/rings.h"
#include "executor/compiled_ops/control.h"
#include "kernels/registry.h"
#include "ops/registry.h"

namespace millrace::executor {

/// A KernelMaker that holds state, for ops that are registered at run time.
using KernelFactory = std::function<StatusOr<kernels::Kernel>(const kernels::KernelSetup&)>;

/// Everything that a run looks up by op type: schemas, kernels, control ops. Immutable after
/// construction, so any number of executors may share it. Thread-safety: concurrent readers.
struct Runtime {
  std::unique_ptr<const ops::OpRegistry> ops;
  std::unique_ptr<const kernels::KernelRegistry> kernels;
  ControlRegistry controls;
  /// Kernels of user-defined ops (executor/custom_op.h), by op type.
  llvm::StringMap<KernelFactory> custom_kernels;
  /// Folder that file ops such as load and save may use; empty: these ops are rejected.
  std::string files_root;
  /// Groups of ranks for collective ops; null: the process has no peers.
  std::shared_ptr<Rings> rings;
};

}  // namespace millrace::executor
