#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "kernels/gpu/communicator.h"
#include "kernels/gpu/products.h"

namespace millrace::gpu {

/// What a device says of itself.
struct DeviceInfo {
  std::string name;        ///< "NVIDIA H100 80GB HBM3"
  std::string capability;  ///< "9.0"; empty if it has none
  std::string driver;      ///< version that the driver supports, "13.0"
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;  ///< when the device was opened
  /// Libraries that are used, with their versions, and those that could not be loaded, with the
  /// reason; our own loops stand in for them.
  std::vector<std::string> libraries;
};

/// How a device is opened.
struct DeviceOptions {
  /// Products of matrices and convolutions may round factors to 10 bits of mantissa (TF32).
  bool tf32 = false;
  /// Bytes that may be allocated at once; 0: all that there is. For tests of what happens then.
  int64_t memory_limit = 0;
};

/// A processor with memory of its own, and one queue of work. Calls return when work is queued, in
/// whose order it is done; only copy_out() and wait() wait for it. An error of queued work comes
/// back from a later call, and every call after it fails.
///
/// Two implementations: CUDA (module "gpu"), and one that keeps its memory away from the rest of
/// the process and runs the same functors in loops (host_device.h), for tests without a GPU.
/// Thread-safety: one thread at a time.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  [[nodiscard]] virtual const DeviceInfo& info() const = 0;

  /// Uninitialised memory of the device, for work that is queued from now on; aligned to 256 bytes.
  /// \param bytes  > 0
  /// Errors: kResource.
  virtual StatusOr<std::byte*> allocate(int64_t bytes) = 0;
  /// Gives memory back when the work queued so far is done.
  virtual void release(std::byte* data) = 0;

  /// From memory of the process; it may change as soon as the call returns.
  virtual Status copy_in(const std::byte* from, std::byte* to, int64_t bytes) = 0;
  /// To memory of the process; waits for the queue.
  virtual Status copy_out(const std::byte* from, std::byte* to, int64_t bytes) = 0;
  /// Within the memory of the device; the pieces do not overlap.
  virtual Status copy(const std::byte* from, std::byte* to, int64_t bytes) = 0;
  /// Waits until all queued work is done. Errors: the first one of that work.
  virtual Status wait() = 0;

  /// Products of matrices and convolutions. A device without a library for them runs the plain
  /// functors.
  virtual Status multiply(const MatrixProduct& product);
  virtual Status convolve(const Convolution& convolution);

  /// Queues one of our own kernels; see launch.h, which gives this its types.
  /// \param functor  number of a functor in the list EachFunctors, or RowFunctors
  /// \param data     the functor itself; it is copied
  virtual Status launch_each(size_t functor, const void* data, int64_t count) = 0;
  virtual Status launch_rows(size_t functor, const void* data, int64_t rows) = 0;

  /// By what the device exchanges values with others; its library is loaded by the first call.
  /// Lives as long as the device. Errors: kUnimplemented where the library cannot be loaded.
  virtual StatusOr<Collectives*> collectives() = 0;
};

}  // namespace millrace::gpu
