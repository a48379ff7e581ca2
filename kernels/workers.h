#pragma once

#include <memory>

#include <llvm/ADT/STLFunctionalExtras.h>

namespace millrace::kernels {

/// The threads of one device. There are two implementations. workers_openmp.cc uses the threads of
/// the OpenMP runtime, which oneDNN also uses, so that two sets of threads do not compete for the
/// same processors. workers_threads.cc creates threads, for builds whose tools do not understand
/// that runtime (thread sanitizer).
class Workers {
 public:
  /// \param threads  number of threads including the calling one, >= 2
  explicit Workers(int threads);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();

  /// Calls body(0) ... body(ranges - 1), each once and in parallel, and returns when all are done.
  /// What a body throws is thrown again then. ranges is at most the number of threads. One call at
  /// a time.
  void run(int ranges, llvm::function_ref<void(int range)> body);

  /// Call this before a thread runs ranges, or calls oneDNN with several threads. A later fork of
  /// this process first ends the threads of the thread that forks; parent and child start new ones
  /// when they need them. Without it the child waits for threads that it does not have. Does
  /// nothing in builds with workers_threads.cc.
  static void end_threads_before_forks();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace::kernels
