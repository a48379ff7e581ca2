#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/workers.h"

namespace millrace::kernels {

// Threads that wait for ranges; the calling thread takes part.
struct Workers::Parts {
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  std::vector<std::thread> threads;
  llvm::function_ref<void(int)>* body = nullptr;
  int ranges = 0;
  int pending = 0;
  uint64_t round = 0;
  bool stop = false;
  std::exception_ptr thrown;  // by a range of this round

  // A range that throws in a thread would end the process.
  static std::exception_ptr exception_of(llvm::function_ref<void(int)> body, int range) {
    try {
      body(range);
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  void end() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    wake.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  // Thread i runs range i + 1; the caller runs range 0.
  void work(int index) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return stop || round != seen; });
      if (stop) return;
      seen = round;
      if (index + 1 >= ranges) continue;
      llvm::function_ref<void(int)>& now = *body;
      lock.unlock();
      std::exception_ptr caught = exception_of(now, index + 1);
      lock.lock();
      if (caught != nullptr) thrown = std::move(caught);
      if (--pending == 0) done.notify_one();
    }
  }
};

Workers::Workers(int threads) : parts_(std::make_unique<Parts>()) {
  parts_->threads.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int i = 0; i + 1 < threads; ++i)
      parts_->threads.emplace_back([parts = parts_.get(), i] { parts->work(i); });
  } catch (...) {
    parts_->end();  // those that were started
    throw;
  }
}

Workers::~Workers() {
  parts_->end();
}

void Workers::run(int ranges, llvm::function_ref<void(int)> body) {
  {
    const std::lock_guard lock(parts_->mutex);
    parts_->body = &body;
    parts_->ranges = ranges;
    parts_->pending = ranges - 1;
    ++parts_->round;
  }
  parts_->wake.notify_all();
  std::exception_ptr caught = Parts::exception_of(body, 0);
  std::unique_lock lock(parts_->mutex);
  // also after an exception, as the threads use what the caller owns
  parts_->done.wait(lock, [this] { return parts_->pending == 0; });
  std::exception_ptr thrown = std::exchange(parts_->thrown, nullptr);
  if (caught == nullptr) caught = std::move(thrown);
  if (caught != nullptr) std::rethrow_exception(caught);
}

void Workers::end_threads_before_forks() {}

}  // namespace millrace::kernels
