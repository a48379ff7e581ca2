#include "executor/parallel/device_threads.h"

namespace millrace::executor {

DeviceThreads::DeviceThreads(int devices) {
  for (int device = 1; device < devices; ++device)
    threads_.emplace_back([this, device] { work(device); });
}

DeviceThreads::~DeviceThreads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void DeviceThreads::run(llvm::function_ref<void(int)> body) {
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    pending_ = static_cast<int>(threads_.size());
    ++round_;
  }
  wake_.notify_all();
  body(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return pending_ == 0; });
}

void DeviceThreads::work(int device) {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || round_ != seen; });
    if (stop_) return;
    seen = round_;
    llvm::function_ref<void(int)>& body = *body_;
    lock.unlock();
    body(device);
    lock.lock();
    if (--pending_ == 0) done_.notify_one();
  }
}

}  // namespace millrace::executor
