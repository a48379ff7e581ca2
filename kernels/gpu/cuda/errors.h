#pragma once

#include <cuda_runtime_api.h>

#include "framework/base/errors.h"

namespace millrace::gpu {

/// Converts the result of a CUDA runtime call to a status. After an error of queued work the device
/// returns that error from every later call; the process must be restarted to use it again.
/// \param what  what was attempted, for the message
inline Status cuda_status(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return Ok();
  const StatusCode code =
      error == cudaErrorMemoryAllocation ? StatusCode::kResource : StatusCode::kExecution;
  Status status(code, fmt::format("CUDA: {}: {} ({})", what, cudaGetErrorString(error),
                                  cudaGetErrorName(error)));
  if (code == StatusCode::kResource) return status;
  return std::move(status).with_hint(
      "the failing work may have been queued by an op before this one; run with --check-nan in "
      "order to see which");
}

}  // namespace millrace::gpu
