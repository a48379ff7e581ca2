#include "io/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "framework/base/exceptions.h"

namespace millrace::io {

Status parallel_for(int threads, size_t count, llvm::function_ref<Status(size_t)> body) {
  const size_t workers = std::min(count, static_cast<size_t>(std::max(threads, 1)));
  if (workers <= 1) {
    for (size_t i = 0; i < count; ++i) MILLRACE_RETURN_IF_ERROR(body(i));
    return Ok();
  }
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  size_t failed = count;
  Status first;
  const auto work = [&] {
    // Indices are assigned in order, so every index below a failed one is processed.
    for (size_t i = next++; i < count; i = next++) {
      Status status =
          without_exceptions("in a loop over files or tensors", [&] { return body(i); });
      if (status.ok()) continue;
      const std::lock_guard lock(mutex);
      next = count;
      if (i < failed) {
        failed = i;
        first = std::move(status);
      }
      return;
    }
  };
  std::vector<std::jthread> pool;
  for (size_t i = 1; i < workers; ++i) pool.emplace_back(work);
  work();
  pool.clear();  // joins the threads
  return first;
}

int threads_for_files(int wanted) {
  if (wanted > 0) return wanted;
  constexpr unsigned kMost = 4;
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, kMost));
}

}  // namespace millrace::io
