#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

#include <llvm/ADT/STLFunctionalExtras.h>

namespace millrace::ps {

/// Threads that run blocking calls in parallel, one thread per call in progress. Threads are
/// started when they are needed and reused until the pool is destroyed.
///
/// Thread-safety: run() from any thread.
class CallPool {
 public:
  CallPool() = default;
  CallPool(const CallPool&) = delete;
  CallPool& operator=(const CallPool&) = delete;
  ~CallPool();

  /// Calls body(0) .. body(count - 1) in parallel, one of them in the calling thread, and returns
  /// when all have returned. If the system has no more threads, some run one after the other.
  void run(size_t count, llvm::function_ref<void(size_t)> body);

 private:
  void work();
  /// The caller must hold the mutex.
  void start_threads();
  /// The caller must hold the mutex, and there must be a task.
  std::function<void()> take_task();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::queue<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool stop_ = false;
};

}  // namespace millrace::ps
