#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "framework/base/status.h"

namespace millrace::ps {

/// Finds the position of a key's row, by open addressing with 4 bytes per entry: 8 bits from the
/// hash of the key and 24 bits of position. Between 0.64 and 0.8 of the entries are occupied.
///
/// The index does not store keys; callers must compare the key of each candidate row.
/// Thread-safety: none.
class RowIndex {
 public:
  /// Maximum number of rows that an index can address.
  static constexpr size_t kMaxRows = (size_t{1} << 24U) - 1;
  static constexpr size_t kNotFound = ~size_t{0};

  /// A search for a key by its hash, whose bits must be uniformly distributed.
  struct Probe {
    size_t place;
    uint32_t tag;
  };
  [[nodiscard]] Probe probe(uint64_t hash) const {
    return {static_cast<size_t>((static_cast<unsigned __int128>(hash) * capacity_) >> 64U),
            static_cast<uint32_t>(hash & 0xffU) << 24U};
  }
  [[nodiscard]] const void* address(const Probe& probe) const { return &places_[probe.place]; }
  /// The next position that may be the key's. If there is none, returns kNotFound, and the probe is
  /// at the entry where the key must be inserted.
  size_t next(Probe& probe) const {
    for (;;) {
      const uint32_t place = places_[probe.place];
      if (place == 0) return kNotFound;
      if (((place ^ probe.tag) & 0xff000000U) == 0) return (place & 0xffffffU) - 1;
      advance(probe);
    }
  }
  /// Moves past the last candidate.
  void advance(Probe& probe) const {
    if (++probe.place == capacity_) probe.place = 0;
  }
  /// Inserts a position where a probe ended with kNotFound. The index must have room.
  void insert(const Probe& probe, size_t position) {
    places_[probe.place] = probe.tag | static_cast<uint32_t>(position + 1);
    ++size_;
  }

  /// True if that many more rows fit without growing.
  [[nodiscard]] bool has_room(size_t more) const { return (size_ + more) * 5 <= capacity_ * 4; }
  /// Empties the index and allocates room for that many rows plus a quarter.
  /// Errors: kResource for memory, or beyond kMaxRows.
  Status reset(size_t rows);
  [[nodiscard]] size_t memory_bytes() const { return capacity_ * sizeof(uint32_t); }

 private:
  std::unique_ptr<uint32_t[]> places_;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace millrace::ps
