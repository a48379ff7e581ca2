#include "framework/tensor/buffer.h"

#include <cstdlib>

#include <fmt/format.h>
#include <sys/mman.h>

namespace millrace {

namespace {

// Buffers of at least this size use pages of this size if the system has them: the first access to
// each small page costs more than the work done on it.
constexpr size_t kLargePage = size_t{1} << 21U;

void* allocate_aligned(size_t bytes) {
  const size_t alignment = bytes < kLargePage ? kBufferAlignment : kLargePage;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* const data = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  // Only whole pages: the last, partly used page must not become a huge page.
  if (data != nullptr && alignment == kLargePage)
    ::madvise(data, bytes / kLargePage * kLargePage, MADV_HUGEPAGE);
  return data;
}

}  // namespace

StatusOr<std::shared_ptr<Buffer>> Buffer::allocate(size_t bytes) {
  constexpr size_t kLimit = SIZE_MAX / 4;
  const size_t rounded = (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  void* const data = bytes > kLimit ? nullptr : allocate_aligned(rounded);
  if (data == nullptr)
    return Status(StatusCode::kResource, fmt::format("no memory for a tensor of {} bytes", bytes));
  return std::shared_ptr<Buffer>(new Buffer(static_cast<std::byte*>(data), rounded));
}

Buffer::~Buffer() {
  std::free(data_);
}

}  // namespace millrace
