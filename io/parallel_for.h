#pragma once

#include <cstddef>

#include <llvm/ADT/STLFunctionalExtras.h>

#include "framework/base/status.h"

namespace millrace::io {

/// Calls body(0) .. body(count - 1) on several threads. After an error no further call is started.
/// \returns the error of the lowest index that failed
Status parallel_for(int threads, size_t count, llvm::function_ref<Status(size_t)> body);

/// Number of threads for reading or writing files: `wanted`; for 0 or less, the number of hardware
/// threads but at most four, because disks do not get faster with more.
int threads_for_files(int wanted);

}  // namespace millrace::io
