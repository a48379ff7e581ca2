#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "framework/base/status.h"

namespace millrace::ps {

/// Memory of messages that is used again: a block that a system gives anew costs its first writer
/// as much time as the transfer of its content.
///
/// What is lent and what lies idle are together at most what was lent at once within the last
/// 20 s, and 64 MiB. Thread-safety: all members, and blocks may be dropped by any thread and after
/// the pool.
class BufferPool {
 public:
  /// A lent piece of memory, aligned as tensors are; goes back when nobody holds it.
  struct Block {
    std::shared_ptr<void> owner;
    std::byte* data = nullptr;
    size_t size = 0;  ///< at least what was asked for
  };

  BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  ~BufferPool();

  /// Errors: kResource with the number of bytes.
  StatusOr<Block> take(size_t bytes);
  /// An idle block of the size; without memory if there is none.
  Block take_idle(size_t bytes);
  /// Bytes that lie idle now.
  [[nodiscard]] size_t idle_bytes() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace millrace::ps
