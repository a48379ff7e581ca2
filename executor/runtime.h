#pragma once

#include <memory>

#include "executor/control.h"
#include "kernels/registry.h"
#include "ops/registry.h"

namespace millrace::executor {

/// Everything a run looks up by op type: schemas, kernels, control ops. Immutable once made, so any
/// number of executors may share one. Thread-safety: concurrent readers.
struct Runtime {
  std::unique_ptr<const ops::OpRegistry> ops;
  std::unique_ptr<const kernels::KernelRegistry> kernels;
  ControlRegistry controls;
};

/// The runtime with every op and CPU kernel of this build.
std::shared_ptr<const Runtime> standard_runtime();

}  // namespace millrace::executor
