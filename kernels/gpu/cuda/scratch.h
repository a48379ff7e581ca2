#pragma once

#include <memory>

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

  /// Errors: kResource, also if it would have to grow while it must not.
  /// \returns at least that many bytes, not initialized
  StatusOr<void*> get(size_t bytes) {
    if (bytes <= bytes_) return data_.get();
    if (may_not_grow_)
      return Status(StatusCode::kResource, "scratch memory cannot grow while work is recorded");
    data_.reset();
    bytes_ = 0;
    void* data = nullptr;
    MILLRACE_RETURN_IF_ERROR(
        cuda_status(cudaMallocAsync(&data, bytes, stream_), "allocating scratch memory"));
    data_.reset(data, [stream = stream_](void* old) { (void)cudaFreeAsync(old, stream); });
    bytes_ = bytes;
    return data;
  }
  void let_grow(bool may) { may_not_grow_ = !may; }
  /// The present memory, for recorded work that uses it; freed when the last owner is gone.
  [[nodiscard]] std::shared_ptr<void> share() const { return data_; }

 private:
  cudaStream_t stream_;
  std::shared_ptr<void> data_;  ///< null: none yet
  size_t bytes_ = 0;            ///< that it holds
  bool may_not_grow_ = false;
};

}  // namespace millrace::gpu
