#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "framework/base/status.h"

namespace millrace::ps {

/// Finds the position of a key's row: open addressing, 4 bytes a place, of which 8 bits are from
/// the key and 24 say the position. Between 0.64 and 0.8 of the places are taken.
///
/// The index does not know keys; whoever asks compares the key of a candidate with his own.
/// Thread-safety: none.
class RowIndex {
 public:
  /// Positions that an index can tell apart.
  static constexpr size_t kMaxRows = (size_t{1} << 24U) - 1;
  static constexpr size_t kNotFound = ~size_t{0};

  /// A search for a key by its hash, whose bits must be evenly spread.
  struct Probe {
    size_t place;
    uint32_t tag;
  };
  [[nodiscard]] Probe probe(uint64_t hash) const {
    return {static_cast<size_t>((static_cast<unsigned __int128>(hash) * capacity_) >> 64U),
            static_cast<uint32_t>(hash & 0xffU) << 24U};
  }
  [[nodiscard]] const void* address(const Probe& probe) const { return &places_[probe.place]; }
  /// The next position that may be the key's; kNotFound if there is none, and the probe is then at
  /// the place where the key belongs.
  size_t next(Probe& probe) const {
    for (;;) {
      const uint32_t place = places_[probe.place];
      if (place == 0) return kNotFound;
      if (((place ^ probe.tag) & 0xff000000U) == 0) return (place & 0xffffffU) - 1;
      advance(probe);
    }
  }
  /// Past the last candidate.
  void advance(Probe& probe) const {
    if (++probe.place == capacity_) probe.place = 0;
  }
  /// Puts a position where a probe ended with kNotFound. There must be room.
  void insert(const Probe& probe, size_t position) {
    places_[probe.place] = probe.tag | static_cast<uint32_t>(position + 1);
    ++size_;
  }

  /// True if so many more fit without growing.
  [[nodiscard]] bool has_room(size_t more) const { return (size_ + more) * 5 <= capacity_ * 4; }
  /// Empties the index and gives it room for so many, with a quarter more to come.
  /// Errors: kResource for memory, or beyond kMaxRows.
  Status reset(size_t rows);
  [[nodiscard]] size_t memory_bytes() const { return capacity_ * sizeof(uint32_t); }

 private:
  std::unique_ptr<uint32_t[]> places_;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace millrace::ps
