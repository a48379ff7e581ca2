#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include <llvm/ADT/STLFunctionalExtras.h>

#include "framework/base/status.h"

namespace millrace::kernels {

/// The processor that the kernels of one executor run on: a number of threads, a source of random
/// numbers, scratch memory, and the state of libraries.
///
/// Each executor owns its devices; two executors share nothing. Thread-safety: one run at a time.
class CpuDevice {
 public:
  /// \param threads  threads that a kernel may use, including the calling one; below 1 counts as 1
  /// \param seed     initial state of the random numbers of ops whose seed attribute is 0
  explicit CpuDevice(int threads = 1, uint64_t seed = 0);
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;
  ~CpuDevice();

  /// Threads that a kernel may use, including the calling one.
  [[nodiscard]] int threads() const { return threads_; }

  /// Calls body(begin, end) for ranges that together cover [0, count) exactly once. The ranges
  /// depend on count, grain and the number of threads only, so results do not depend on timing.
  /// Runs inline if there is one thread or count <= grain.
  /// \param grain  minimum number of items that justifies using another thread, >= 1
  void parallel_for(int64_t count, int64_t grain,
                    llvm::function_ref<void(int64_t begin, int64_t end)> body);

  /// Returns a seed for an op whose seed attribute is 0; a different one for each call.
  uint64_t next_seed();

  /// Memory for the duration of one kernel call, 64-byte aligned, not initialized. The next call
  /// with the same slot invalidates it. Errors: kResource.
  /// \param slot  0 to 3, for kernels that need several buffers at once
  StatusOr<std::byte*> scratch(size_t bytes, int slot = 0);

  /// State that a library keeps per device (oneDNN's engine and stream), created at first use.
  template <typename T>
  T& library() {
    static constexpr char kKey = 0;
    std::shared_ptr<void>& state = library_state(&kKey);
    if (state == nullptr) state = std::make_shared<T>();
    return *static_cast<T*>(state.get());
  }

 private:
  struct Parts;
  std::shared_ptr<void>& library_state(const void* key);

  int threads_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace::kernels
