#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "executor/parallel/device_threads.h"
#include "framework/base/status.h"
#include "kernels/gpu/communicator.h"
#include "kernels/gpu/context.h"

namespace millrace::executor {

/// Connects the GPUs of one process for exchanges of values in their memory: by NCCL, or what
/// replaces it on emulated devices. Each device has a rank, which its thread uses.
///
/// A failure on a device breaks the ranks of all; join() connects them again.
/// Thread-safety: of() and abort() by the thread of the device; the others while no device runs.
class DeviceLinks {
 public:
  /// \param gpus        by device
  /// \param timeout_ms  of joining, and of one exchange
  DeviceLinks(std::vector<std::shared_ptr<gpu::Context>> gpus, int64_t timeout_ms)
      : gpus_(std::move(gpus)), timeout_ms_(timeout_ms), ranks_(gpus_.size()) {}
  DeviceLinks(const DeviceLinks&) = delete;
  DeviceLinks& operator=(const DeviceLinks&) = delete;

  /// Connects the devices unless they are connected. Errors: kUnimplemented if the library for that
  /// cannot be loaded; those of gpu::Collectives::join(), with the device.
  Status join(DeviceThreads& threads);
  /// Disconnects the devices. To be called before the devices are closed.
  void leave(DeviceThreads& threads);

  /// The rank of a device.
  [[nodiscard]] gpu::Communicator& of(int device) const {
    return *ranks_[static_cast<size_t>(device)];
  }
  /// Ends the exchanges of all devices, because this one has failed.
  void abort(int device, const Status& reason);

 private:
  [[nodiscard]] bool are_joined() const;

  std::vector<std::shared_ptr<gpu::Context>> gpus_;
  int64_t timeout_ms_;
  std::vector<std::unique_ptr<gpu::Communicator>> ranks_;  ///< by device; null: not joined
  std::atomic<bool> stopped_{false};                       ///< a device has failed
};

}  // namespace millrace::executor
