#include "executor/parallel/device_threads.h"

#include <utility>

#include "executor/overlap/spin.h"

namespace millrace::executor {

DeviceThreads::DeviceThreads(int devices) : spins_(spins_for(devices)) {
  try {
    for (int device = 1; device < devices; ++device)
      threads_.emplace_back([this, device] { work(device); });
  } catch (...) {
    end();  // those that were started
    throw;
  }
}

DeviceThreads::~DeviceThreads() {
  end();
}

void DeviceThreads::end() {
  stop_.store(true, std::memory_order_seq_cst);
  notify(wake_);
  for (std::thread& thread : threads_) thread.join();
}

template <typename Done>
void DeviceThreads::wait(std::condition_variable& changed, Done&& done) {
  for (int spin = 0; spin < spins_; ++spin) {
    if (done()) return;
    spin_pause();
  }
  std::unique_lock lock(mutex_);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  changed.wait(lock, done);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

// A sleeping thread has counted itself as such before it last checked its condition.
void DeviceThreads::notify(std::condition_variable& changed) {
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  const std::lock_guard lock(mutex_);
  changed.notify_all();
}

void DeviceThreads::run(llvm::function_ref<void(int)> body) {
  body_ = &body;
  pending_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_seq_cst);
  notify(wake_);
  run_caught(0);
  // also after an exception, as the threads use what the caller owns
  wait(done_, [this] { return pending_.load(std::memory_order_seq_cst) == 0; });
  if (std::exception_ptr thrown = std::exchange(thrown_, nullptr); thrown != nullptr)
    std::rethrow_exception(thrown);
}

// An exception in a thread would end the process; run() throws it.
void DeviceThreads::run_caught(int device) {
  try {
    (*body_)(device);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    thrown_ = std::current_exception();
  }
}

void DeviceThreads::work(int device) {
  uint64_t seen = 0;
  while (true) {
    wait(wake_, [&] {
      return stop_.load(std::memory_order_seq_cst) ||
             round_.load(std::memory_order_seq_cst) != seen;
    });
    if (stop_.load(std::memory_order_seq_cst)) return;
    ++seen;
    run_caught(device);
    if (pending_.fetch_sub(1, std::memory_order_seq_cst) == 1) notify(done_);
  }
}

}  // namespace millrace::executor
