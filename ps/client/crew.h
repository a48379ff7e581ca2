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

/// Threads for calls that wait side by side, one for each that is under way. They stay until the
/// end. Thread-safety: run() from any thread.
class Crew {
 public:
  Crew() = default;
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew();

  /// Calls body(0) .. body(count - 1) at the same time, one of them in this thread, and returns
  /// when all have returned.
  void run(size_t count, llvm::function_ref<void(size_t)> body);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::queue<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool stop_ = false;
};

}  // namespace millrace::ps
