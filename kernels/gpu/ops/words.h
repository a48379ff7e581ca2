#pragma once

#include <initializer_list>

#include "kernels/gpu/functors/moves.h"
#include "kernels/gpu/ops/args.h"

namespace millrace::gpu {

// Moves copy elements without regard to their type, as words of as many bytes as fit: an element of
// 12 bytes that begins at a multiple of 4 is three words of 4 bytes.

/// Calls body with a value of the type of words of that many bytes: 1, 2, 4, 8 or 16. Errors:
/// rejects other numbers.
template <typename Body>
Status with_word(int64_t bytes, const Body& body) {
  switch (bytes) {
    case 1:
      return body(uint8_t{});
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    case 8:
      return body(uint64_t{});
    case 16:
      return body(WideWord{});
    default:
      return refuse("elements of {} bytes", bytes);
  }
}

/// The largest power of 2 up to `most`, itself one, that divides all of these.
inline int64_t common_factor(int64_t most, std::initializer_list<int64_t> numbers) {
  for (const int64_t number : numbers) {
    while (number % most != 0) most /= 2;
  }
  return most;
}

/// The address within 16 bytes, for common_factor().
inline int64_t address_of(const std::byte* data) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % 16);
}

}  // namespace millrace::gpu
