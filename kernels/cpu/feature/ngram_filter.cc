#include "kernels/cpu/feature/ngram_filter.h"

#include <array>
#include <bit>
#include <cstring>

#include "kernels/kernel.h"

namespace millrace::kernels {
namespace {

constexpr uint64_t kMagic = 17070416;
constexpr int64_t kHeadBytes = 32;
constexpr uint64_t kMostHashes = 256;

uint64_t mixed(uint64_t k) {
  k = (k ^ (k >> 33U)) * 0xff51afd7ed558ccdULL;
  k = (k ^ (k >> 33U)) * 0xc4ceb9fe1a85ec53ULL;
  return k ^ (k >> 33U);
}

// MurmurHash3 for 64-bit machines, with 128 bits of result.
std::array<uint64_t, 2> murmur3(const void* key, size_t bytes, uint64_t seed) {
  constexpr uint64_t kFirst = 0x87c37b91114253d5ULL;
  constexpr uint64_t kSecond = 0x4cf5ad432745937fULL;
  uint64_t h1 = seed;
  uint64_t h2 = seed;
  const auto* at = static_cast<const uint8_t*>(key);
  const auto first_of = [](uint64_t k) { return std::rotl(k * kFirst, 31) * kSecond; };
  const auto second_of = [](uint64_t k) { return std::rotl(k * kSecond, 33) * kFirst; };
  size_t left = bytes;
  for (; left >= 16; left -= 16, at += 16) {
    std::array<uint64_t, 2> k;
    std::memcpy(k.data(), at, 16);
    h1 = (std::rotl(h1 ^ first_of(k[0]), 27) + h2) * 5 + 0x52dce729;
    h2 = (std::rotl(h2 ^ second_of(k[1]), 31) + h1) * 5 + 0x38495ab5;
  }
  // missing bytes count as zeros; a part without any bytes is skipped
  std::array<uint64_t, 2> k{};
  std::memcpy(k.data(), at, left);
  if (left > 8) h2 ^= second_of(k[1]);
  if (left > 0) h1 ^= first_of(k[0]);
  h1 ^= bytes;
  h2 ^= bytes;
  h1 += h2;
  h2 += h1;
  h1 = mixed(h1);
  h2 = mixed(h2);
  h1 += h2;
  return {h1, h2 + h1};
}

}  // namespace

StatusOr<NgramFilter> NgramFilter::read(const Tensor& tensor, const char* slot) {
  std::array<uint64_t, 4> head{};
  if (tensor.bytes() >= kHeadBytes) std::memcpy(head.data(), tensor.raw(), kHeadBytes);
  const auto [magic, bits, hashes, entries] = head;
  if (magic != kMagic)
    return KernelContext::error("{} holds no Bloom filter: found {} for its magic number {}", slot,
                                magic, kMagic);
  const uint64_t room = static_cast<uint64_t>(tensor.bytes() - kHeadBytes) * 8;
  if (bits < 1 || bits > room || hashes > kMostHashes) {
    return KernelContext::error(
        "{} has a filter of {} bits and {} hash functions, expected 1 to {} "
        "and up to {}",
        slot, bits, hashes, room, kMostHashes);
  }
  NgramFilter filter;
  filter.bits_ = reinterpret_cast<const uint8_t*>(tensor.raw() + kHeadBytes);
  filter.bit_count_ = bits;
  filter.hashes_ = hashes;
  return filter;
}

bool NgramFilter::has(const void* key, size_t bytes) const {
  for (uint64_t i = 0; i < hashes_; ++i) {
    for (const uint64_t hash : murmur3(key, bytes, i)) {
      const uint64_t bit = hash % bit_count_;
      if ((bits_[bit >> 3U] & (0x80U >> (bit & 7U))) == 0) return false;
    }
  }
  return true;
}

}  // namespace millrace::kernels
