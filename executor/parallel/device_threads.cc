#include "executor/parallel/device_threads.h"

#include <utility>

#include <unistd.h>

#include "executor/overlap/spin.h"

namespace millrace::executor {

DeviceThreads::DeviceThreads(int devices) : devices_(devices) {
  start();
}

DeviceThreads::~DeviceThreads() {
  if (process_ == ::getpid())
    end();
  else
    leave_to_parent();
}

void DeviceThreads::start() {
  process_ = ::getpid();
  shared_ = std::make_unique<Shared>(devices_);
  try {
    for (int device = 1; device < devices_; ++device)
      threads_.emplace_back([shared = shared_.get(), device] { shared->work(device); });
  } catch (...) {
    end();  // those that were started
    throw;
  }
}

void DeviceThreads::end() {
  shared_->stop.store(true, std::memory_order_seq_cst);
  shared_->notify(shared_->wake);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void DeviceThreads::leave_to_parent() {
  for (std::thread& thread : threads_) thread.detach();
  threads_.clear();
  static_cast<void>(shared_.release());
}

void DeviceThreads::run(llvm::function_ref<void(int)> body) {
  if (process_ != ::getpid()) {
    leave_to_parent();
    start();
  }
  Shared& shared = *shared_;
  shared.body = &body;
  shared.pending.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
  shared.round.fetch_add(1, std::memory_order_seq_cst);
  shared.notify(shared.wake);
  shared.run_caught(0);
  // also after an exception, as the threads use what the caller owns
  shared.wait(shared.done, [&] { return shared.pending.load(std::memory_order_seq_cst) == 0; });
  if (std::exception_ptr thrown = std::exchange(shared.thrown, nullptr); thrown != nullptr)
    std::rethrow_exception(thrown);
}

DeviceThreads::Shared::Shared(int devices) : spins(spins_for(devices)) {}

template <typename Until>
void DeviceThreads::Shared::wait(std::condition_variable& changed, Until&& until) {
  for (int spin = 0; spin < spins; ++spin) {
    if (until()) return;
    spin_pause();
  }
  std::unique_lock lock(mutex);
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  changed.wait(lock, until);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

// A sleeping thread has counted itself as such before it last checked its condition.
void DeviceThreads::Shared::notify(std::condition_variable& changed) {
  if (sleepers.load(std::memory_order_seq_cst) == 0) return;
  const std::lock_guard lock(mutex);
  changed.notify_all();
}

// An exception in a thread would end the process; run() throws it.
void DeviceThreads::Shared::run_caught(int device) {
  try {
    (*body)(device);
  } catch (...) {
    const std::lock_guard lock(mutex);
    thrown = std::current_exception();
  }
}

void DeviceThreads::Shared::work(int device) {
  uint64_t seen = 0;
  while (true) {
    wait(wake, [&] {
      return stop.load(std::memory_order_seq_cst) || round.load(std::memory_order_seq_cst) != seen;
    });
    if (stop.load(std::memory_order_seq_cst)) return;
    ++seen;
    run_caught(device);
    if (pending.fetch_sub(1, std::memory_order_seq_cst) == 1) notify(done);
  }
}

}  // namespace millrace::executor
