#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "framework/base/status.h"

namespace millrace::ps {

/// A pool of message buffers. Memory that is new from the system costs as much time at its first
/// write as the transfer of its content, so blocks are reused.
///
/// Blocks in use and idle blocks together are limited to the peak use of the last 20 s plus 64 MiB.
/// Thread-safety: all members; blocks may be released by any thread, even after the pool is
/// destroyed.
class BufferPool {
 public:
  /// A block of memory, aligned as tensors are; returns to the pool when its last owner releases
  /// it.
  struct Block {
    std::shared_ptr<void> owner;
    std::byte* data = nullptr;
    size_t size = 0;  ///< at least the requested size
  };

  BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  ~BufferPool();

  /// Returns an idle or a new block. Errors: kResource with the number of bytes.
  StatusOr<Block> take(size_t bytes);
  /// Returns an idle block of at least that size; without memory if there is none.
  Block take_idle(size_t bytes);
  /// Bytes in idle blocks.
  [[nodiscard]] size_t idle_bytes() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace millrace::ps
