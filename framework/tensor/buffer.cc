#include "framework/tensor/buffer.h"

#include <cstdlib>

#include <fmt/format.h>

namespace millrace {

StatusOr<std::shared_ptr<Buffer>> Buffer::allocate(size_t bytes) {
  constexpr size_t kLimit = SIZE_MAX / 4;
  const size_t rounded = (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  void* const data = bytes > kLimit ? nullptr
                                    : std::aligned_alloc(kBufferAlignment,
                                                         rounded == 0 ? kBufferAlignment : rounded);
  if (data == nullptr)
    return Status(StatusCode::kResource, fmt::format("no memory for a tensor of {} bytes", bytes));
  return std::shared_ptr<Buffer>(new Buffer(static_cast<std::byte*>(data), rounded));
}

Buffer::~Buffer() {
  std::free(data_);
}

}  // namespace millrace
