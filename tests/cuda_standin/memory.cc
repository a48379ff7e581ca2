#include "tests/cuda_standin/memory.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

namespace millrace::standin {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kRange = size_t{1} << 40U;  // addresses of a device; only used ones have memory
constexpr int kFresh = 0xFF;
constexpr int kPattern = 0xA5;

constexpr size_t round_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

DeviceMemory::DeviceMemory() {
  void* const data =
      ::mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    std::fprintf(stderr, "stand-in: no address range for the memory of a device\n");
    std::abort();
  }
  start_ = static_cast<std::byte*>(data);
}

void* DeviceMemory::reserve(size_t bytes) {
  if (bytes > free_bytes()) return nullptr;
  const size_t page_bytes = round_up(bytes, kPage);
  if (next_ + page_bytes + 2 * kPage > kRange) return nullptr;
  Piece piece;
  piece.bytes = bytes;
  piece.pages = start_ + next_ + kPage;
  piece.page_bytes = page_bytes;
  piece.is_live = true;
  next_ += page_bytes + kPage;
  used_ += bytes;
  std::byte* const data = piece.pages + page_bytes - round_up(bytes, kAlignment);
  pieces_[data] = piece;
  return data;
}

bool DeviceMemory::retire(void* data) {
  const auto found = pieces_.find(static_cast<std::byte*>(data));
  if (found == pieces_.end() || !found->second.is_live) return false;
  found->second.is_live = false;
  used_ -= found->second.bytes;
  return true;
}

bool DeviceMemory::holds(const void* data, size_t bytes) const {
  const auto* const at = static_cast<const std::byte*>(data);
  auto found = pieces_.upper_bound(const_cast<std::byte*>(at));
  if (found == pieces_.begin()) return false;
  --found;
  const size_t offset = static_cast<size_t>(at - found->first);
  return found->second.is_live && offset <= found->second.bytes &&
         bytes <= found->second.bytes - offset;
}

bool DeviceMemory::owns(const void* data) const {
  const auto* const at = static_cast<const std::byte*>(data);
  return at >= start_ && at < start_ + kRange;
}

size_t DeviceMemory::live() const {
  return static_cast<size_t>(std::count_if(pieces_.begin(), pieces_.end(),
                                           [](const auto& piece) { return piece.second.is_live; }));
}

void DeviceMemory::protect(const Piece& piece, bool allow) const {
  ::mprotect(piece.pages, piece.page_bytes, allow ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void DeviceMemory::begin(void* data) {
  auto* const start = static_cast<std::byte*>(data);
  Piece& piece = pieces_.at(start);
  piece.is_ready = true;
  protect(piece, true);
  std::memset(piece.pages, kPattern, piece.page_bytes);
  std::memset(start, kFresh, piece.bytes);
}

bool DeviceMemory::end(void* data, bool keep) {
  auto* const start = static_cast<std::byte*>(data);
  Piece& piece = pieces_.at(start);
  const auto intact = [](std::byte byte) { return byte == std::byte{kPattern}; };
  const bool good = std::all_of(piece.pages, start, intact) &&
                    std::all_of(start + piece.bytes, piece.pages + piece.page_bytes, intact);
  piece.is_ready = false;
  protect(piece, false);
  ::madvise(piece.pages, piece.page_bytes, MADV_DONTNEED);
  if (!keep) pieces_.erase(start);
  return good;
}

void DeviceMemory::forget(void* data) {
  const auto found = pieces_.find(static_cast<std::byte*>(data));
  if (found == pieces_.end()) return;
  if (found->second.is_live) used_ -= found->second.bytes;
  protect(found->second, false);
  ::madvise(found->second.pages, found->second.page_bytes, MADV_DONTNEED);
  pieces_.erase(found);
}

void DeviceMemory::open() {
  open_ = true;
  for (const auto& [data, piece] : pieces_) {
    if (piece.is_ready) protect(piece, true);
  }
}

void DeviceMemory::close() {
  open_ = false;
  for (const auto& [data, piece] : pieces_) {
    if (piece.is_ready) protect(piece, false);
  }
}

}  // namespace millrace::standin
