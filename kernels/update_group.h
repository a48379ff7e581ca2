#pragma once

#include <cstddef>
#include <cstdint>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLFunctionalExtras.h>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "kernels/device.h"

namespace millrace::kernels {

/// What one device contributes to an update that all devices of a process make together.
struct SharedUpdate {
  int number = 0;                  ///< number of the update in the program
  Tensor* param = nullptr;         ///< this device's copy
  Tensor* grad = nullptr;          ///< gradient of this device; the sum over all devices is applied
  llvm::ArrayRef<Tensor*> states;  ///< shared by all devices after meet()
  double rate = 0;                 ///< learning rate, equal on all devices
};

/// The devices of a process, as seen by an update op on one of them. Each element of a parameter is
/// updated once, by whichever device is free, and written to the copies of all devices.
class UpdateGroup {
 public:
  UpdateGroup() = default;
  UpdateGroup(const UpdateGroup&) = delete;
  UpdateGroup& operator=(const UpdateGroup&) = delete;
  virtual ~UpdateGroup() = default;

  /// Updates elements [begin, begin + count) of this device's parameter and states, counted in
  /// memory order.
  /// \param grad  the summed gradients of these elements
  using Update = llvm::function_ref<void(int64_t begin, int64_t count, const std::byte* grad)>;

  /// Waits until all devices have reached this update. Afterwards the tensors of all devices have
  /// the same order of elements, and the states share memory on all devices; take pointers into
  /// them after this call only. Errors: kExecution if the tensors of the devices differ;
  /// kDistributed if another device has failed or does not arrive.
  virtual Status meet(CpuDevice& device, const SharedUpdate& own) = 0;
  /// Computes a share of the update that meet() was called for. Other devices may still be working
  /// on their shares when it returns. Errors: kDistributed.
  virtual Status apply(CpuDevice& device, int number, Update update) = 0;
};

/// What CpuDevice::library() stores for update ops; null on a device that belongs to no group.
struct UpdateGroupOfDevice {
  UpdateGroup* group = nullptr;
};

}  // namespace millrace::kernels
