#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "kernels/gpu/memory.h"

namespace millrace::gpu {

/// Whole numbers in device memory that an op computes on the processor, such as the rows of
/// sequences; copied again only when they change, so that steps with the same sequences can be
/// recorded (executor/gpu/replays.h). The kernel of the op owns it. Thread-safety: as Device.
class DeviceNumbers {
 public:
  /// The numbers in device memory; not null, even if there are none. Errors: kResource, kExecution.
  StatusOr<const int64_t*> get(Memory& memory, llvm::ArrayRef<int64_t> numbers) {
    const auto bytes = static_cast<int64_t>(numbers.size() * sizeof(int64_t));
    if (block_ == nullptr || numbers != llvm::ArrayRef<int64_t>(held_)) {
      if (block_ == nullptr || block_->bytes() < bytes) {
        // some more, since the number of rows differs between steps
        MILLRACE_ASSIGN_OR_RETURN(block_, memory.allocate(bytes + bytes / 4 + 256, "row numbers"));
      }
      held_.assign(numbers.begin(), numbers.end());
      if (bytes > 0)
        MILLRACE_RETURN_IF_ERROR(memory.copy_in(reinterpret_cast<const std::byte*>(held_.data()),
                                                block_->data(), bytes));
    }
    return reinterpret_cast<const int64_t*>(block_->data());
  }

 private:
  std::vector<int64_t> held_;     ///< what the device has
  std::shared_ptr<Block> block_;  ///< null: nothing so far
};

}  // namespace millrace::gpu
