#include "jobs/distribute/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "framework/base/exceptions.h"

namespace millrace::jobs {

Status parallel_for(size_t count, int threads, const std::function<Status(size_t)>& body) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  size_t failed_at = count;
  Status failure;
  auto work = [&] {
    for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      Status status = without_exceptions("in a loop over programs", [&] { return body(i); });
      if (status.ok()) continue;
      next.store(count);
      const std::lock_guard<std::mutex> lock(mutex);
      if (i < failed_at) {
        failed_at = i;
        failure = std::move(status);
      }
    }
  };
  const size_t helpers = std::min(count, static_cast<size_t>(std::max(threads, 1)));
  std::vector<std::jthread> pool;  // also joined if a later one cannot be started
  for (size_t i = 1; i < helpers; ++i) pool.emplace_back(work);
  work();
  for (std::jthread& thread : pool) thread.join();
  return failure;
}

}  // namespace millrace::jobs
