#pragma once

#include <cuda_runtime_api.h>

#include "kernels/gpu/cuda/errors.h"

namespace millrace::gpu {

/// Workspace of one queued library call; the next call in the same stream reuses it. It grows up to
/// the size that the library requests. Memory is allocated and freed in the order of the stream, so
/// growing does not wait for the device.
class Scratch {
 public:
  explicit Scratch(cudaStream_t stream) : stream_(stream) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (data_ != nullptr) cudaFreeAsync(data_, stream_);
  }

  /// Errors: kResource.
  /// \returns at least that many bytes, not initialised
  StatusOr<void*> get(size_t bytes) {
    if (bytes <= bytes_) return data_;
    if (data_ != nullptr) cudaFreeAsync(data_, stream_);
    data_ = nullptr;
    bytes_ = 0;
    MILLRACE_RETURN_IF_ERROR(
        cuda_status(cudaMallocAsync(&data_, bytes, stream_), "allocating scratch memory"));
    bytes_ = bytes;
    return data_;
  }

 private:
  cudaStream_t stream_;
  void* data_ = nullptr;  ///< null: none yet
  size_t bytes_ = 0;      ///< that it holds
};

}  // namespace millrace::gpu
