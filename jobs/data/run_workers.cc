#include "jobs/data/run_workers.h"

#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "framework/base/exceptions.h"

namespace millrace::jobs {
namespace {

// Keeps the first failure of several threads.
class FirstFailure {
 public:
  explicit FirstFailure(const WorkerCalls& calls) : calls_(calls) {}
  void note(Status status) {
    if (status.ok()) return;
    calls_.stop();
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = std::move(status);
  }
  [[nodiscard]] Status take() { return std::move(failure_); }

 private:
  const WorkerCalls& calls_;
  std::mutex mutex_;
  Status failure_;
};

void run_worker(int worker, const WorkerCalls& calls, FirstFailure& failure) {
  Status status = without_exceptions("in a worker", [&] { return calls.work(worker); });
  if (calls.leave) {
    if (Status left = without_exceptions("in a worker", calls.leave); status.ok())
      status = std::move(left);
  }
  failure.note(std::move(status));
}

}  // namespace

Status run_workers(int workers, const WorkerCalls& calls) {
  FirstFailure failure(calls);
  if (workers == 1) {
    run_worker(0, calls, failure);
    return failure.take();
  }
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(workers));
  try {
    for (int worker = 0; worker < workers; ++worker)
      threads.emplace_back([&, worker] { run_worker(worker, calls, failure); });
  } catch (const std::exception& error) {
    failure.note(
        Status(StatusCode::kResource, fmt::format("no thread for a worker: {}", error.what())));
    // those that were started end; they wait for no worker that was not
    for (size_t i = threads.size(); calls.leave && i < static_cast<size_t>(workers); ++i)
      failure.note(calls.leave());
  }
  for (std::thread& thread : threads) thread.join();
  return failure.take();
}

}  // namespace millrace::jobs
