#pragma once

#include <memory>

#include "kernels/gpu/memory.h"

namespace millrace::gpu {

/// Device memory for intermediate results of one op, which is kept from run to run: an op that
/// allocates in every run could not be recorded (executor/gpu/replays.h). The kernel of the op owns
/// it, so it is freed with the compiled program. Two ops never share it, although they do not run
/// at the same time: the memory of small sums is not worth the bookkeeping.
/// Thread-safety: as Device.
template <typename T>
class KeptMemory {
 public:
  /// \param holder  for messages about full memory; must outlive the object
  KeptMemory(Memory& memory, const char* holder) : memory_(memory), holder_(holder) {}

  /// Memory for that many elements, not initialized. Errors: kResource.
  StatusOr<T*> get(int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    if (block_ == nullptr || block_->bytes() < bytes) {
      block_.reset();
      MILLRACE_ASSIGN_OR_RETURN(block_, memory_.allocate(bytes, holder_));
    }
    return reinterpret_cast<T*>(block_->data());
  }

 private:
  Memory& memory_;
  const char* holder_;
  std::shared_ptr<Block> block_;  ///< null: not needed so far
};

}  // namespace millrace::gpu
