#pragma once

#include <algorithm>
#include <memory>

#include "kernels/gpu/memory.h"

namespace millrace::gpu {

/// Device memory that ops use one after another: the work of a device is done in the order in which
/// it is queued, so what one op leaves there is never read by another. Thread-safety: as Device.
class SharedScratch {
 public:
  /// At least that many bytes, not initialized. A caller that records work which uses them keeps
  /// the block as long as the recording. Errors: kResource.
  StatusOr<std::shared_ptr<Block>> get(Memory& memory, int64_t bytes, const char* holder) {
    if (block_ == nullptr || block_->bytes() < bytes) {
      // grows by half at least, so that few of the ops of a program allocate
      const int64_t before = block_ == nullptr ? 0 : block_->bytes();
      block_.reset();
      MILLRACE_ASSIGN_OR_RETURN(block_,
                                memory.allocate(std::max(bytes, before + before / 2), holder));
    }
    return block_;
  }

 private:
  std::shared_ptr<Block> block_;  ///< null: not needed so far
};

}  // namespace millrace::gpu
