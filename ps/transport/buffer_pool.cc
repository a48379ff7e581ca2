#include "ps/transport/buffer_pool.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "framework/tensor/buffer.h"

namespace millrace::ps {
namespace {

constexpr size_t kKeepAnyway = size_t{64} << 20U;
constexpr std::chrono::seconds kPeriod{10};
// Below this size, the system's allocator is as fast.
constexpr size_t kSmall = size_t{64} << 10U;

}  // namespace

struct BufferPool::State {
  std::mutex mutex;
  std::multimap<size_t, std::shared_ptr<Buffer>> idle;  // by size
  size_t idle_bytes = 0;
  size_t lent_bytes = 0;
  // Peak bytes lent in this period and in the previous one.
  std::array<size_t, 2> peaks{};
  std::chrono::steady_clock::time_point period_begin = std::chrono::steady_clock::now();

  // The caller must hold the lock.
  void lend(size_t bytes) {
    lent_bytes += bytes;
    peaks[0] = std::max(peaks[0], lent_bytes);
  }

  size_t keep_limit() {
    const auto now = std::chrono::steady_clock::now();
    if (now - period_begin > kPeriod) {
      peaks = {lent_bytes, now - period_begin > 2 * kPeriod ? 0 : peaks[0]};
      period_begin = now;
    }
    return std::max(peaks[0], peaks[1]) + kKeepAnyway;
  }

  void give_back(std::shared_ptr<Buffer> buffer) {
    std::vector<std::shared_ptr<Buffer>> surplus;  // freed after the lock
    const std::lock_guard<std::mutex> lock(mutex);
    const size_t size = buffer->size();
    const size_t limit = keep_limit();
    lent_bytes -= size;
    idle_bytes += size;
    idle.emplace(size, std::move(buffer));
    while (idle_bytes + lent_bytes > limit) {
      const auto largest = std::prev(idle.end());
      idle_bytes -= largest->first;
      surplus.push_back(std::move(largest->second));
      idle.erase(largest);
    }
  }

  std::shared_ptr<Buffer> pick(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = idle.lower_bound(bytes);
    // A much larger block is kept for requests of its size.
    if (found == idle.end() || found->first > 2 * bytes) return nullptr;
    std::shared_ptr<Buffer> buffer = std::move(found->second);
    idle_bytes -= found->first;
    lend(found->first);
    idle.erase(found);
    return buffer;
  }
};

namespace {

template <typename State>
BufferPool::Block lend(std::shared_ptr<Buffer> buffer, const std::shared_ptr<State>& state) {
  BufferPool::Block block{nullptr, buffer->data(), buffer->size()};
  block.owner = std::shared_ptr<void>(
      buffer->data(), [buffer, pool_state = std::weak_ptr<State>(state)](void*) mutable {
        if (const std::shared_ptr<State> pool = pool_state.lock())
          pool->give_back(std::move(buffer));
      });
  return block;
}

}  // namespace

BufferPool::BufferPool() : state_(std::make_shared<State>()) {}
BufferPool::~BufferPool() = default;

BufferPool::Block BufferPool::take_idle(size_t bytes) {
  if (bytes < kSmall) return {};
  std::shared_ptr<Buffer> buffer = state_->pick(bytes);
  return buffer == nullptr ? Block() : lend(std::move(buffer), state_);
}

StatusOr<BufferPool::Block> BufferPool::take(size_t bytes) {
  Block idle = take_idle(bytes);
  if (idle.data != nullptr) return idle;
  MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer, Buffer::allocate(bytes));
  if (bytes < kSmall) {
    Block block{nullptr, buffer->data(), buffer->size()};
    block.owner = std::move(buffer);
    return block;
  }
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->lend(buffer->size());
  }
  return lend(std::move(buffer), state_);
}

size_t BufferPool::idle_bytes() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->idle_bytes;
}

}  // namespace millrace::ps
