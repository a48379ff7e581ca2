#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "framework/types.h"

namespace millrace::executor {

/// Whether the block runners of a device look for kernels that read or write memory they should
/// not; state of the device (kernels::CpuDevice::library()). Set before blocks are compiled.
struct MemoryWatch {
  bool on = false;
};

/// Fills elements that nobody has written yet: NaN for floats, a number that no program means for
/// integers.
void fill_unwritten(DType dtype, std::span<std::byte> memory);
/// The same for the elements of a tensor in row-major order, or of any layout.
void fill_unwritten(Tensor& tensor);

/// Watches a piece of memory whose parts are in use by turns. Parts that are not in use are filled
/// with NaN; who writes to them is found out. Under the address sanitizer touching them ends the
/// process at once.
///
/// Thread-safety: one thread at a time.
class MemoryGuard {
 public:
  MemoryGuard() = default;
  MemoryGuard(const MemoryGuard&) = delete;
  MemoryGuard& operator=(const MemoryGuard&) = delete;
  ~MemoryGuard() { leave(); }

  /// Watches this memory, all of it in use. Parts begin at multiples of kBufferAlignment and own
  /// the memory up to the next multiple. The memory must stay until leave().
  void watch(std::span<std::byte> memory);
  /// Opens everything and watches nothing from here on.
  void leave();
  /// A part is not in use from here on.
  void close(std::span<std::byte> part);
  /// A part is in use from here on.
  void open(std::span<std::byte> part);
  /// kInternal if somebody has written to a part that is not in use.
  [[nodiscard]] Status check() const;

 private:
  void mark(std::span<std::byte> part, bool closed);

  std::span<std::byte> memory_;
  std::vector<bool> closed_;  ///< a cache line each
};

}  // namespace millrace::executor
