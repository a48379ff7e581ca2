#include "executor/overlap/lanes.h"

#include <thread>

#include "executor/overlap/spin.h"

namespace millrace::executor {
Lanes::Lanes(const Dependencies& dependencies) {
  const size_t count = dependencies.ops();
  std::vector<std::vector<int32_t>> next(count);
  for (size_t op = 0; op < count; ++op) {
    const llvm::ArrayRef<int32_t> before = dependencies.before(op);
    waits_for_.push_back(static_cast<int32_t>(before.size()));
    if (before.empty()) roots_.push_back(static_cast<int32_t>(op));
    for (const int32_t other : before)
      next[static_cast<size_t>(other)].push_back(static_cast<int32_t>(op));
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
                  llvm::function_ref<Status(int lane, size_t op)> run_op) {
  for (size_t op = 0; op < waits_for_.size(); ++op) {
    waiting_[op].store(waits_for_[op], std::memory_order_relaxed);
    queue_[op].store(-1, std::memory_order_relaxed);
  }
  taken_ = 0;
  offered_ = 0;
  done_ = 0;
  failed_ = false;
  failed_op_ = -1;
  failure_ = Ok();
  for (const int32_t root : roots_) offer(root);
  // if the system provides fewer threads, the first lane runs everything
  device.parallel_for(lanes, 1, [&](int64_t begin, int64_t end) {
    for (int64_t lane = begin; lane < end; ++lane) work(static_cast<int>(lane), run_op);
  });
  return std::move(failure_);
}

void Lanes::work(int lane, llvm::function_ref<Status(int lane, size_t op)> run_op) {
  const auto count = static_cast<int32_t>(waits_for_.size());
  const int spins = spins_for(2);
  int32_t op = -1;
  int waited = 0;
  while (!failed_.load(std::memory_order_acquire)) {
    if (op < 0) op = take();
    if (op < 0) {
      if (done_.load(std::memory_order_acquire) == count) return;
      if (++waited > spins) {
        std::this_thread::yield();
      } else {
        spin_pause();
      }
      continue;
    }
    waited = 0;
    if (Status status = run_op(lane, static_cast<size_t>(op)); !status.ok())
      return fail(op, std::move(status));
    op = finish(op);
  }
}

// Takes an offered op; -1 if there is none.
int32_t Lanes::take() {
  int32_t place = taken_.load(std::memory_order_relaxed);
  while (place < offered_.load(std::memory_order_acquire)) {
    const int32_t op = queue_[static_cast<size_t>(place)].load(std::memory_order_acquire);
    if (op < 0) return -1;  // its queue entry is reserved but not written yet
    if (taken_.compare_exchange_weak(place, place + 1, std::memory_order_acq_rel)) return op;
  }
  return -1;
}

void Lanes::offer(int32_t op) {
  const int32_t place = offered_.fetch_add(1, std::memory_order_acq_rel);
  queue_[static_cast<size_t>(place)].store(op, std::memory_order_release);
}

// Decrements the counters of ops that wait for this one. The first op that can now run stays on
// this thread: it is the nearest successor, so its inputs are in the cache.
int32_t Lanes::finish(int32_t op) {
  int32_t mine = -1;
  const auto begin = static_cast<size_t>(next_from_[static_cast<size_t>(op)]);
  const auto end = static_cast<size_t>(next_from_[static_cast<size_t>(op) + 1]);
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

void Lanes::fail(int32_t op, Status status) {
  while (failing_.test_and_set(std::memory_order_acquire)) spin_pause();
  if (failed_op_ < 0 || op < failed_op_) {
    failed_op_ = op;
    failure_ = std::move(status);
  }
  failing_.clear(std::memory_order_release);
  failed_.store(true, std::memory_order_release);
}

}  // namespace millrace::executor
