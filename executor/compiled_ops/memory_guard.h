#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "framework/types.h"

namespace millrace::executor {

/// Whether the block runners of a device detect kernels that read or write memory they should not;
/// state of the device (kernels::CpuDevice::library()). Set before blocks are compiled.
struct MemoryWatch {
  bool on = false;
};

/// Fills elements that have not been written yet: NaN for floats, an unlikely number for integers.
void fill_unwritten(DType dtype, std::span<std::byte> memory);
/// The same for the elements of a tensor in row-major order, or of any layout.
void fill_unwritten(Tensor& tensor);

/// Watches a memory region whose parts are in use at different times. Unused parts are filled with
/// NaN, and writes to them are detected. With the address sanitizer, accessing them ends the
/// process immediately.
///
/// Thread-safety: one thread at a time.
class MemoryGuard {
 public:
  MemoryGuard() = default;
  MemoryGuard(const MemoryGuard&) = delete;
  MemoryGuard& operator=(const MemoryGuard&) = delete;
  ~MemoryGuard() { leave(); }

  /// Watches this memory, all of it in use. Parts begin at multiples of kBufferAlignment and extend
  /// to the next multiple. The memory must exist until leave().
  void watch(std::span<std::byte> memory);
  /// Marks everything as in use and stops watching.
  void leave();
  /// Marks a part as unused.
  void close(std::span<std::byte> part);
  /// Marks a part as in use.
  void open(std::span<std::byte> part);
  /// kInternal if an unused part has been written to.
  [[nodiscard]] Status check() const;

 private:
  void mark(std::span<std::byte> part, bool closed);

  std::span<std::byte> memory_;
  std::vector<bool> closed_;  ///< one entry per cache line
};

}  // namespace millrace::executor
