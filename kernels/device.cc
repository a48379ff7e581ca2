#include "kernels/device.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "framework/tensor/buffer.h"

namespace millrace::kernels {
namespace {

// splitmix64: neighbouring states give unrelated numbers.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

// Workers that wait for ranges; the caller takes part. One loop at a time.
class Workers {
 public:
  explicit Workers(int count) {
    threads_.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) threads_.emplace_back([this, i] { work(i); });
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // Range i of `ranges` goes to worker i - 1; range 0 to the caller.
  void run(int64_t count, int ranges, llvm::function_ref<void(int64_t, int64_t)> body) {
    {
      const std::lock_guard lock(mutex_);
      body_ = &body;
      count_ = count;
      ranges_ = ranges;
      pending_ = ranges - 1;
      ++round_;
    }
    wake_.notify_all();
    body(0, count / ranges);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return pending_ == 0; });
  }

 private:
  void work(int index) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
      const int range = index + 1;
      if (range >= ranges_) continue;
      const int64_t begin = count_ * range / ranges_;
      const int64_t end = count_ * (range + 1) / ranges_;
      llvm::function_ref<void(int64_t, int64_t)>& body = *body_;
      lock.unlock();
      body(begin, end);
      lock.lock();
      if (--pending_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::vector<std::thread> threads_;
  llvm::function_ref<void(int64_t, int64_t)>* body_ = nullptr;
  int64_t count_ = 0;
  int ranges_ = 0;
  int pending_ = 0;
  uint64_t round_ = 0;
  bool stop_ = false;
};

}  // namespace

struct CpuDevice::Parts {
  std::unique_ptr<Workers> workers;
  std::array<std::shared_ptr<Buffer>, 4> scratch;
  std::map<const void*, std::shared_ptr<void>> libraries;
  uint64_t seed = 0;
};

CpuDevice::CpuDevice(int threads, uint64_t seed)
    : threads_(std::max(threads, 1)), parts_(std::make_unique<Parts>()) {
  parts_->seed = seed;
}

CpuDevice::~CpuDevice() = default;

void CpuDevice::parallel_for(int64_t count, int64_t grain,
                             llvm::function_ref<void(int64_t, int64_t)> body) {
  if (count <= 0) return;
  const int64_t wanted = std::min<int64_t>(threads_, (count + grain - 1) / grain);
  if (wanted <= 1) {
    body(0, count);
    return;
  }
  if (parts_->workers == nullptr) parts_->workers = std::make_unique<Workers>(threads_ - 1);
  parts_->workers->run(count, static_cast<int>(wanted), body);
}

uint64_t CpuDevice::next_seed() {
  return mix(parts_->seed++);
}

StatusOr<std::byte*> CpuDevice::scratch(size_t bytes, int slot) {
  std::shared_ptr<Buffer>& buffer = parts_->scratch[static_cast<size_t>(slot)];
  if (buffer == nullptr || buffer->size() < bytes) {
    buffer.reset();
    MILLRACE_ASSIGN_OR_RETURN(buffer, Buffer::allocate(bytes));
  }
  return buffer->data();
}

std::shared_ptr<void>& CpuDevice::library_state(const void* key) {
  return parts_->libraries[key];
}

}  // namespace millrace::kernels
