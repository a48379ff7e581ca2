#include "ps/client/call_pool.h"

#include <exception>
#include <utility>

namespace millrace::ps {

CallPool::~CallPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void CallPool::run(size_t count, llvm::function_ref<void(size_t)> body) {
  if (count == 0) return;
  size_t pending = count - 1;
  if (pending > 0) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 1; i < count; ++i) {
      tasks_.emplace([this, i, body, &pending] {
        body(i);
        const std::lock_guard task_lock(mutex_);
        if (--pending == 0) done_.notify_all();
      });
    }
    // tasks block on servers, so none may be queued after another one
    start_threads();
    wake_.notify_all();
  }
  body(0);
  std::unique_lock lock(mutex_);
  // only if the system has no more threads
  while (pending > 0 && idle_ < tasks_.size()) {
    const std::function<void()> task = take_task();
    lock.unlock();
    task();
    lock.lock();
  }
  done_.wait(lock, [&] { return pending == 0; });
}

void CallPool::start_threads() {
  try {
    while (idle_ < tasks_.size()) {
      threads_.emplace_back([this] { work(); });
      ++idle_;
    }
  } catch (const std::exception&) {
    // the callers of run() carry out what is left, one after the other
  }
}

std::function<void()> CallPool::take_task() {
  std::function<void()> task = std::move(tasks_.front());
  tasks_.pop();
  return task;
}

// A thread counts as idle until it takes a task; run() counts the threads that it starts.
void CallPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    --idle_;
    const std::function<void()> task = take_task();
    lock.unlock();
    task();
    lock.lock();
    ++idle_;
  }
}

}  // namespace millrace::ps
