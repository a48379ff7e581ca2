#pragma once

#include <cstddef>
#include <cstdint>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLFunctionalExtras.h>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "kernels/device.h"

namespace millrace::kernels {

/// What one device brings into an update that all devices of a process make together.
struct SharedUpdate {
  int number = 0;           ///< of the update in the program
  Tensor* param = nullptr;  ///< this device's copy
  Tensor* grad = nullptr;   ///< this device's part of the gradient; the sum over devices is applied
  llvm::ArrayRef<Tensor*> states;
  double rate = 0;
};

/// The devices of a process as an update op of one of them sees them: each element of a parameter
/// is updated once, by whichever device has time, and written to the copies of all.
class UpdateGroup {
 public:
  UpdateGroup() = default;
  UpdateGroup(const UpdateGroup&) = delete;
  UpdateGroup& operator=(const UpdateGroup&) = delete;
  virtual ~UpdateGroup() = default;

  /// Updates elements [begin, begin + count) of this device's parameter and states, in the order in
  /// which they stand in memory. \param grad  the sums for these elements
  using Update = llvm::function_ref<void(int64_t begin, int64_t count, const std::byte* grad)>;

  /// Waits until all devices have come to this update. Afterwards the tensors have one order of
  /// elements, and the states are the same memory on all devices; pointers into them are taken
  /// after this call. Errors: kExecution where the tensors of devices differ; kDistributed if
  /// another device has failed or does not come.
  virtual Status meet(CpuDevice& device, const SharedUpdate& own) = 0;
  /// Makes a share of the update that meet() was called for. Others may still be at theirs when it
  /// returns. Errors: kDistributed.
  virtual Status apply(CpuDevice& device, int number, Update update) = 0;
};

/// What CpuDevice::library() keeps for update ops; null on a device that stands alone.
struct UpdateGroupOfDevice {
  UpdateGroup* group = nullptr;
};

}  // namespace millrace::kernels
