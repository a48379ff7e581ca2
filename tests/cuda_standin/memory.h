#pragma once

#include <cstddef>
#include <map>

namespace millrace::standin {

/// The memory of one device of the stand-in: pages that nothing can touch except queued work, while
/// it runs (open() to close()).
///
/// Addresses are never used twice, there are unmapped pages between allocations, and an allocation
/// ends within 256 bytes of the end of its page. Bytes in front of and after an allocation, in its
/// own pages, hold a pattern that is checked when it is freed. New memory is filled with 0xFF,
/// which is NaN in every float format.
///
/// An allocation exists for the host from reserve() to retire(), and for queued work from begin()
/// to end(). Thread-safety: none; the lock of the runtime protects it.
class DeviceMemory {
 public:
  static constexpr size_t kTotalBytes = size_t{4} << 30U;  ///< of a device
  static constexpr size_t kAlignment = 256;

  DeviceMemory();

  /// Returns an address for that many bytes, > 0; null if the device has not that many left.
  void* reserve(size_t bytes);
  /// The host frees the allocation. False if this is not the start of an allocation that exists.
  bool retire(void* data);
  /// True if the range is within one allocation that exists for the host.
  [[nodiscard]] bool holds(const void* data, size_t bytes) const;
  /// True if the address is one of this device, allocated or not.
  [[nodiscard]] bool owns(const void* data) const;
  [[nodiscard]] size_t free_bytes() const { return kTotalBytes - used_; }
  /// Number of allocations that exist for the host.
  [[nodiscard]] size_t live() const;

  /// Queued work allocates and fills the memory; it must be open.
  void begin(void* data);
  /// Queued work frees the memory. False if bytes outside of the allocation were overwritten.
  /// \param keep  the address is used again: by the next launch of a graph
  bool end(void* data, bool keep);
  /// Forgets an address that was kept.
  void forget(void* data);

  /// Lets work access all allocations that exist for queued work.
  void open();
  void close();
  [[nodiscard]] bool is_open() const { return open_; }

 private:
  /// An allocation, by its address.
  struct Piece {
    size_t bytes = 0;            ///< as requested
    std::byte* pages = nullptr;  ///< first page
    size_t page_bytes = 0;
    bool is_live = false;   ///< for the host
    bool is_ready = false;  ///< for queued work
  };
  void protect(const Piece& piece, bool allow) const;

  std::byte* start_ = nullptr;  ///< of the address range of the device
  size_t next_ = 0;             ///< offset of the next allocation
  size_t used_ = 0;             ///< bytes of allocations that exist for the host
  bool open_ = false;
  std::map<std::byte*, Piece> pieces_;
};

}  // namespace millrace::standin
