#pragma once

#include <cstddef>

#include <llvm/ADT/STLFunctionalExtras.h>

#include "framework/base/status.h"

namespace millrace::io {

/// Calls body(0) .. body(count - 1), spread over threads; after an error no further call begins.
/// \returns the error of the lowest index that failed
Status parallel_for(int threads, size_t count, llvm::function_ref<Status(size_t)> body);

}  // namespace millrace::io
