#pragma once

#include <cuda_runtime_api.h>

#include "kernels/gpu/cuda/errors.h"

namespace millrace::gpu {

/// Milliseconds that queued work takes on the GPU, from the second of two runs; waits for it.
/// \param queue  queues the work in the stream and returns a Status
/// Errors: those of queue; kExecution.
template <typename Queue>
StatusOr<float> time_work(cudaStream_t stream, const Queue& queue) {
  constexpr const char* kWhat = "timing work";
  constexpr unsigned kWithTiming = 0;
  MILLRACE_RETURN_IF_ERROR(queue());
  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;
  float milliseconds = 0;
  Status status = cuda_status(cudaEventCreateWithFlags(&start, kWithTiming), kWhat);
  if (status.ok()) status = cuda_status(cudaEventCreateWithFlags(&end, kWithTiming), kWhat);
  if (status.ok()) status = cuda_status(cudaEventRecord(start, stream), kWhat);
  if (status.ok()) status = queue();
  if (status.ok()) status = cuda_status(cudaEventRecord(end, stream), kWhat);
  if (status.ok()) status = cuda_status(cudaEventSynchronize(end), kWhat);
  if (status.ok()) status = cuda_status(cudaEventElapsedTime(&milliseconds, start, end), kWhat);
  if (start != nullptr) (void)cudaEventDestroy(start);
  if (end != nullptr) (void)cudaEventDestroy(end);
  MILLRACE_RETURN_IF_ERROR(std::move(status));
  return milliseconds;
}

}  // namespace millrace::gpu
