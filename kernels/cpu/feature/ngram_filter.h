#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"

namespace millrace::kernels {

/// A Bloom filter as pyramid_hash reads it from a tensor: the magic number 17070416, the number of
/// bits, of hash functions and of entries, 8 bytes each (little endian), then the bits, the highest
/// bit of a byte first. Hash function i is MurmurHash3 (x64, 128 bits) with seed i; both halves of
/// the result, modulo the number of bits, must be set.
class NgramFilter {
 public:
  /// \param tensor  must outlive the filter
  /// Errors: another magic number; sizes that do not fit the tensor.
  static StatusOr<NgramFilter> read(const Tensor& tensor, const char* slot);

  /// False if the key was never added. True if it was, and rarely (false positive) if it was not.
  [[nodiscard]] bool has(const void* key, size_t bytes) const;

 private:
  const uint8_t* bits_ = nullptr;  ///< in the memory of the tensor
  uint64_t bit_count_ = 0;
  uint64_t hashes_ = 0;  ///< number of hash functions
};

}  // namespace millrace::kernels
