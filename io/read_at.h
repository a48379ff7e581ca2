#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace millrace::io {

/// How far read_at() got.
struct ReadResult {
  size_t bytes = 0;  ///< read before the end of the file or the error
  int error = 0;     ///< errno of the call that failed; 0: none
};

/// Reads bytes of an open file from an offset until `to` is full or the file ends; calls that a
/// signal interrupted are repeated. Thread-safe: the position of the file does not change.
ReadResult read_at(int fd, uint64_t offset, std::span<std::byte> to);

}  // namespace millrace::io
