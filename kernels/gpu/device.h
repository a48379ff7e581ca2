#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/status.h"
#include "kernels/gpu/communicator.h"
#include "kernels/gpu/functors/products.h"

namespace millrace::gpu {

/// Properties of a device.
struct DeviceInfo {
  std::string name;        ///< "NVIDIA H100 80GB HBM3"
  std::string capability;  ///< "9.0"; empty if it has none
  std::string driver;      ///< CUDA version that the driver supports, "13.0"
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;              ///< at the time when the device was opened
  std::vector<std::string> libraries;  ///< in use, "cuBLASLt 13.1.0"
  /// Libraries that could not be loaded, with the reason. Plain loops of millrace replace them:
  /// correct, and slow.
  std::vector<std::string> missing;
};

/// Options for opening a device.
struct DeviceOptions {
  /// Products of matrices and convolutions may round factors to 10 bits of mantissa (TF32).
  bool tf32 = false;
  /// Products of matrices may round factors to bfloat16; sums and convolutions are not affected.
  bool bf16 = false;
  /// Maximum number of bytes allocated at a time; 0: all memory. For tests of out-of-memory errors.
  int64_t memory_limit = 0;
};

/// Work that a device has recorded, which can be queued again as a whole. It refers to the memory
/// that it was recorded with. Must not outlive its device. Thread-safety: as Device.
class Recording {
 public:
  Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  virtual ~Recording() = default;

  /// Queues the work. Errors: kExecution.
  virtual Status replay() = 0;
};

/// A processor with separate memory and one queue of work. Calls return when the work is queued;
/// the work is executed in queue order. Only copy_out() and wait() wait for it. An error of queued
/// work is returned by a later call, and every call after that fails.
///
/// There are two implementations: CUDA (module "gpu"), and an emulation for tests without a GPU
/// (host_device.h). The emulation protects its memory from the rest of the process and runs the
/// same functors in loops. Thread-safety: one thread at a time.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  [[nodiscard]] virtual const DeviceInfo& info() const = 0;

  /// Allocates uninitialized device memory for work that is queued from now on; aligned to 256
  /// bytes.
  /// \param bytes  > 0
  /// Errors: kResource.
  virtual StatusOr<std::byte*> allocate(int64_t bytes) = 0;
  /// Frees memory when the work queued so far is done.
  virtual void release(std::byte* data) = 0;

  /// Copies from process memory, which may be changed as soon as the call returns.
  virtual Status copy_in(const std::byte* from, std::byte* to, int64_t bytes) = 0;
  /// Copies to process memory; waits for the queue.
  virtual Status copy_out(const std::byte* from, std::byte* to, int64_t bytes) = 0;
  /// Copies within device memory; the ranges must not overlap.
  virtual Status copy(const std::byte* from, std::byte* to, int64_t bytes) = 0;
  /// Waits until all queued work is done. Errors: the first error of that work.
  virtual Status wait() = 0;

  /// Until end_recording(), work is recorded and not executed. Calls that wait, allocate, or copy
  /// from or to the process fail with kInternal then. Memory that is released is freed after
  /// end_recording(). Errors: kExecution.
  virtual Status begin_recording() = 0;
  /// Ends the recording, also after an error. Nothing of it has been executed.
  /// Errors: kInternal if one of these calls was made; kExecution.
  virtual StatusOr<std::unique_ptr<Recording>> end_recording() = 0;

  /// To be called by a kernel that does not do the same in every run with the same tensors: whose
  /// arguments have a seed that is counted on the processor, or which looks at values there, for
  /// example for an error. Its work is not recorded.
  void note_unrepeatable() { unrepeatable_ = true; }
  /// True if that was called since the last call of this function.
  [[nodiscard]] bool take_unrepeatable() { return std::exchange(unrepeatable_, false); }

  /// Products of matrices and convolutions. Devices without a suitable library run the plain
  /// functors. Errors: kUnimplemented for 16-bit elements, if the library computes this with f32
  /// only; kResource, kExecution.
  virtual Status multiply(const MatrixProduct& product);
  virtual Status convolve(const Convolution& convolution);

  /// Queues one of millrace's kernels; see launch.h for a typed interface.
  /// \param functor  number of the functor in the list EachFunctors, or RowFunctors; for rows side
  ///                 by side (lanes()), after adding RowFunctors::kSize
  /// \param data     the functor object; it is copied
  virtual Status launch_each(size_t functor, const void* data, int64_t count) = 0;
  virtual Status launch_rows(size_t functor, const void* data, int64_t rows) = 0;

  /// The interface for exchanging values with other devices; the first call loads its library.
  /// Lives as long as the device. Errors: kUnimplemented if the library cannot be loaded.
  virtual StatusOr<Collectives*> collectives() = 0;

 private:
  bool unrepeatable_ = false;
};

}  // namespace millrace::gpu
