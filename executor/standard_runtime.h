#pragma once

#include <memory>
#include <string>

#include "executor/runtime.h"

namespace millrace::executor {

/// Every CPU kernel of this build: those of kernels/, and those that exchange values between
/// devices.
std::unique_ptr<const kernels::KernelRegistry> executor_kernels();

/// A runtime with every op and CPU kernel of this build. The caller may add control ops before the
/// runtime is used.
std::shared_ptr<Runtime> make_runtime(std::string files_root = {},
                                      std::shared_ptr<Rings> rings = nullptr);

/// The same for callers that add nothing.
std::shared_ptr<const Runtime> standard_runtime(std::string files_root = {},
                                                std::shared_ptr<Rings> rings = nullptr);

}  // namespace millrace::executor
