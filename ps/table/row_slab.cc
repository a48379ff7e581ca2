#include "ps/table/row_slab.h"

#include <algorithm>

#include <sys/mman.h>

#include "framework/base/errors.h"

namespace millrace::ps {
namespace {

constexpr size_t kPage = 4096;
/// From this size on, huge pages pay off: they reduce TLB misses.
constexpr size_t kLargePagesFrom = size_t{8} << 20U;

}  // namespace

RowSlab::RowSlab(int row_floats)
    : stride_(sizeof(uint64_t) + static_cast<size_t>(row_floats) * sizeof(float)) {}

RowSlab::~RowSlab() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Status RowSlab::reserve(size_t rows) {
  const size_t needed = rows * stride_;
  if (needed <= bytes_) return Ok();
  const size_t target = needed + std::max(needed / 64, kPage);
  const size_t bytes = (target + kPage - 1) / kPage * kPage;
  void* const grown = data_ == nullptr ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                       : mremap(data_, bytes_, bytes, MREMAP_MAYMOVE);
  if (grown == MAP_FAILED)
    return {StatusCode::kResource,
            fmt::format("out of memory for {} rows of {} bytes", rows, stride_)};
  data_ = static_cast<std::byte*>(grown);
  bytes_ = bytes;
  if (bytes_ >= kLargePagesFrom)
    madvise(data_, bytes_, MADV_HUGEPAGE);  // only a hint; failure is harmless
  return Ok();
}

size_t RowSlab::append(uint64_t key) {
  std::memcpy(data_ + size_ * stride_, &key, sizeof(key));
  return size_++;
}

void RowSlab::copy(size_t from, size_t to) {
  if (from != to) std::memcpy(data_ + to * stride_, data_ + from * stride_, stride_);
}

}  // namespace millrace::ps
