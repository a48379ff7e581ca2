#pragma once

#include <cstddef>

#include <llvm/ADT/STLFunctionalExtras.h>

#include "framework/base/status.h"

namespace millrace::io {

/// Calls body(0) .. body(count - 1), spread over threads; after an error no further call begins.
/// \returns the error of the lowest index that failed
Status parallel_for(int threads, size_t count, llvm::function_ref<Status(size_t)> body);

/// Threads for reading or writing files: as many as wanted; for 0 or less as many as the machine
/// runs, four at most, because disks do not get faster with more.
int threads_for_files(int wanted);

}  // namespace millrace::io
