#pragma once

#include <memory>

#include <llvm/ADT/STLFunctionalExtras.h>

namespace millrace::kernels {

/// The threads of one device. There are two files of it: workers_openmp.cc runs on the threads of
/// the OpenMP runtime, which are those that oneDNN runs on, so that no two sets of threads wait for
/// work on the same processors; workers_threads.cc has threads of its own, for builds whose tools
/// do not know that runtime (thread sanitizer).
class Workers {
 public:
  /// \param threads  the caller's included, >= 2
  explicit Workers(int threads);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();

  /// Calls body(0) ... body(ranges - 1), each once, on as many threads, and returns when all are
  /// done. ranges is at most the number of threads; one call at a time.
  void run(int ranges, llvm::function_ref<void(int range)> body);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace::kernels
