#include "executor/compiled_ops/memory_guard.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <llvm/Support/Compiler.h>

#include "framework/tensor/buffer.h"

namespace millrace::executor {
namespace {

// The sanitizer would report our own reads of unused parts.
constexpr bool kSanitizerLooks = LLVM_ADDRESS_SANITIZER_BUILD != 0;

// All bits set: NaN in every float type.
constexpr int kFloatByte = 0xff;
// Far from all likely indices and sizes; as a bool it is true.
constexpr int kIntegerByte = 0xa5;

bool is_float_type(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBfloat16;
}

}  // namespace

void fill_unwritten(DType dtype, std::span<std::byte> memory) {
  if (memory.empty()) return;
  const int byte = is_float_type(dtype) ? kFloatByte : dtype == DType::kBool ? 1 : kIntegerByte;
  std::memset(memory.data(), byte, memory.size());
}

void fill_unwritten(Tensor& tensor) {
  if (tensor.raw() == nullptr) return;
  fill_unwritten(tensor.dtype(), {tensor.raw(), static_cast<size_t>(tensor.storage_bytes())});
}

void MemoryGuard::watch(std::span<std::byte> memory) {
  leave();
  memory_ = memory;
  closed_.assign((memory.size() + kBufferAlignment - 1) / kBufferAlignment, false);
}

void MemoryGuard::leave() {
  if (!memory_.empty()) {
    __asan_unpoison_memory_region(memory_.data(), memory_.size());
  }
  memory_ = {};
  closed_.clear();
}

void MemoryGuard::mark(std::span<std::byte> part, bool closed) {
  const auto begin = static_cast<size_t>(part.data() - memory_.data());
  const size_t end = std::min(begin + part.size(), memory_.size());
  std::fill(closed_.begin() + static_cast<std::ptrdiff_t>(begin / kBufferAlignment),
            closed_.begin() +
                static_cast<std::ptrdiff_t>((end + kBufferAlignment - 1) / kBufferAlignment),
            closed);
}

void MemoryGuard::close(std::span<std::byte> part) {
  if (part.empty() || memory_.empty()) return;
  const auto begin = static_cast<size_t>(part.data() - memory_.data());
  const size_t lines = (part.size() + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  const std::span<std::byte> whole =
      memory_.subspan(begin, std::min(lines, memory_.size() - begin));
  // parts of it may still be closed
  __asan_unpoison_memory_region(whole.data(), whole.size());
  std::memset(whole.data(), kFloatByte, whole.size());
  __asan_poison_memory_region(whole.data(), whole.size());
  mark(whole, /*closed=*/true);
}

void MemoryGuard::open(std::span<std::byte> part) {
  if (part.empty() || memory_.empty()) return;
  __asan_unpoison_memory_region(part.data(), part.size());
  mark(part, /*closed=*/false);
}

Status MemoryGuard::check() const {
  if (kSanitizerLooks) return Ok();
  for (size_t line = 0; line < closed_.size(); ++line) {
    if (!closed_[line]) continue;
    const size_t begin = line * kBufferAlignment;
    const size_t end = std::min(begin + kBufferAlignment, memory_.size());
    for (size_t i = begin; i < end; ++i) {
      if (memory_[i] == static_cast<std::byte>(kFloatByte)) continue;
      return {StatusCode::kInternal,
              fmt::format("the op has written to memory that no value uses, at byte {} of the {} "
                          "that temporaries share",
                          i, memory_.size())};
    }
  }
  return Ok();
}

}  // namespace millrace::executor
