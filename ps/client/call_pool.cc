#include "ps/client/call_pool.h"

#include <exception>
#include <new>
#include <utility>

namespace millrace::ps {
namespace {

// What body(i) throws; in a thread it would end the process.
std::exception_ptr exception_of(llvm::function_ref<void(size_t)> body, size_t i) {
  try {
    body(i);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

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
  size_t pending = 0;
  std::exception_ptr thrown;
  size_t queued = 1;
  if (count > 1) {
    const std::lock_guard lock(mutex_);
    try {
      for (; queued < count; ++queued) {
        tasks_.emplace([this, i = queued, body, &pending, &thrown] {
          std::exception_ptr caught = exception_of(body, i);
          const std::lock_guard task_lock(mutex_);
          if (caught != nullptr) thrown = std::move(caught);
          if (--pending == 0) done_.notify_all();
        });
        ++pending;
      }
    } catch (const std::bad_alloc&) {
      // this thread carries out those that are not queued
    }
    // tasks block on servers, so none may be queued after another one
    start_threads();
    wake_.notify_all();
  }
  std::exception_ptr own = exception_of(body, 0);
  for (size_t i = queued; i < count && own == nullptr; ++i) own = exception_of(body, i);
  std::unique_lock lock(mutex_);
  // only if the system has no more threads
  while (pending > 0 && idle_ < tasks_.size()) {
    const std::function<void()> task = take_task();
    lock.unlock();
    task();
    lock.lock();
  }
  // also after an exception, as the tasks use what the caller owns
  done_.wait(lock, [&] { return pending == 0; });
  if (own == nullptr) own = thrown;
  if (own != nullptr) std::rethrow_exception(own);
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
