#include "executor/overlap/lanes.h"

#include <thread>

#include "executor/overlap/spin.h"

namespace millrace::executor {
Lanes::Lanes(const Dependencies& dependencies) {
  const size_t count = dependencies.steps();
  std::vector<std::vector<int32_t>> next(count);
  for (size_t step = 0; step < count; ++step) {
    const llvm::ArrayRef<int32_t> before = dependencies.before(step);
    waits_for_.push_back(static_cast<int32_t>(before.size()));
    if (before.empty()) roots_.push_back(static_cast<int32_t>(step));
    for (const int32_t other : before)
      next[static_cast<size_t>(other)].push_back(static_cast<int32_t>(step));
  }
  for (const std::vector<int32_t>& list : next) {
    next_from_.push_back(static_cast<int32_t>(next_.size()));
    next_.insert(next_.end(), list.begin(), list.end());
  }
  next_from_.push_back(static_cast<int32_t>(next_.size()));
  waiting_ = std::make_unique<std::atomic<int32_t>[]>(count);
  queue_ = std::make_unique<std::atomic<int32_t>[]>(count);
}

Status Lanes::run(kernels::CpuDevice& device, int lanes,
                  llvm::function_ref<Status(int lane, size_t step)> run_step) {
  for (size_t step = 0; step < waits_for_.size(); ++step) {
    waiting_[step].store(waits_for_[step], std::memory_order_relaxed);
    queue_[step].store(-1, std::memory_order_relaxed);
  }
  taken_ = 0;
  offered_ = 0;
  done_ = 0;
  failed_ = false;
  failed_step_ = -1;
  failure_ = Ok();
  for (const int32_t root : roots_) offer(root);
  // if the system provides fewer threads, the first lane runs everything
  device.parallel_for(lanes, 1, [&](int64_t begin, int64_t end) {
    for (int64_t lane = begin; lane < end; ++lane) work(static_cast<int>(lane), run_step);
  });
  return std::move(failure_);
}

void Lanes::work(int lane, llvm::function_ref<Status(int lane, size_t step)> run_step) {
  const auto count = static_cast<int32_t>(waits_for_.size());
  const int spins = spins_for(2);
  int32_t step = -1;
  int waited = 0;
  while (!failed_.load(std::memory_order_acquire)) {
    if (step < 0) step = take();
    if (step < 0) {
      if (done_.load(std::memory_order_acquire) == count) return;
      if (++waited > spins) {
        std::this_thread::yield();
      } else {
        spin_pause();
      }
      continue;
    }
    waited = 0;
    if (Status status = run_step(lane, static_cast<size_t>(step)); !status.ok())
      return fail(step, std::move(status));
    step = finish(step);
  }
}

// Takes an offered step; -1 if there is none.
int32_t Lanes::take() {
  int32_t place = taken_.load(std::memory_order_relaxed);
  while (place < offered_.load(std::memory_order_acquire)) {
    const int32_t step = queue_[static_cast<size_t>(place)].load(std::memory_order_acquire);
    if (step < 0) return -1;  // its queue entry is reserved but not written yet
    if (taken_.compare_exchange_weak(place, place + 1, std::memory_order_acq_rel)) return step;
  }
  return -1;
}

void Lanes::offer(int32_t step) {
  const int32_t place = offered_.fetch_add(1, std::memory_order_acq_rel);
  queue_[static_cast<size_t>(place)].store(step, std::memory_order_release);
}

// Decrements the counters of steps that wait for this one. The first step that can now run stays on
// this thread: it is the nearest successor, so its inputs are in the cache.
int32_t Lanes::finish(int32_t step) {
  int32_t mine = -1;
  const auto begin = static_cast<size_t>(next_from_[static_cast<size_t>(step)]);
  const auto end = static_cast<size_t>(next_from_[static_cast<size_t>(step) + 1]);
  for (const int32_t next : llvm::ArrayRef(next_).slice(begin, end - begin)) {
    if (waiting_[static_cast<size_t>(next)].fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    if (mine < 0) {
      mine = next;
    } else {
      offer(next);
    }
  }
  done_.fetch_add(1, std::memory_order_release);
  return mine;
}

void Lanes::fail(int32_t step, Status status) {
  while (failing_.test_and_set(std::memory_order_acquire)) spin_pause();
  if (failed_step_ < 0 || step < failed_step_) {
    failed_step_ = step;
    failure_ = std::move(status);
  }
  failing_.clear(std::memory_order_release);
  failed_.store(true, std::memory_order_release);
}

}  // namespace millrace::executor
