#include "tests/executor/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> calls = 0;
}  // namespace

int64_t allocations() {
  return calls;
}

// Replaces the operators of the whole program. In a separate source file: if the compiler saw
// malloc and free inside new and delete at their callers, it would warn of a mismatch.
// NOLINTBEGIN(misc-new-delete-overloads,cppcoreguidelines-no-malloc)
void* operator new(size_t bytes) {
  ++calls;
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  ++calls;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t /*bytes*/) noexcept {
  std::free(memory);
}
// NOLINTEND(misc-new-delete-overloads,cppcoreguidelines-no-malloc)
