#include "executor/memory_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "framework/tensor/buffer.h"

namespace millrace::executor {
namespace {

constexpr auto kAlignment = static_cast<int64_t>(kBufferAlignment);

int64_t rounded(int64_t bytes) {
  return std::max<int64_t>((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
}

// The free parts of a memory region that grows at its end.
class Holes {
 public:
  int64_t take(int64_t bytes) {
    const auto found = by_size_.lower_bound({bytes, 0});
    if (found == by_size_.end()) return grow(bytes);
    const auto [size, offset] = *found;
    erase(offset, size);
    if (size > bytes) insert(offset + bytes, size - bytes);
    return offset;
  }

  void give_back(int64_t offset, int64_t bytes) {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && offset + bytes == next->first) {
      bytes += next->second;
      erase(next->first, next->second);
      next = by_offset_.lower_bound(offset);
    }
    if (next != by_offset_.begin()) {
      const auto [before, size] = *std::prev(next);
      if (before + size == offset) {
        erase(before, size);
        offset = before;
        bytes += size;
      }
    }
    insert(offset, bytes);
  }

  [[nodiscard]] int64_t end() const { return end_; }

 private:
  // Extends the last hole if it reaches to the end.
  int64_t grow(int64_t bytes) {
    int64_t offset = end_;
    if (!by_offset_.empty()) {
      const auto [last, size] = *by_offset_.rbegin();
      if (last + size == end_) {
        erase(last, size);
        offset = last;
      }
    }
    end_ = offset + bytes;
    return offset;
  }
  void insert(int64_t offset, int64_t size) {
    by_offset_[offset] = size;
    by_size_.insert({size, offset});
  }
  void erase(int64_t offset, int64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  std::map<int64_t, int64_t> by_offset_;
  std::set<std::pair<int64_t, int64_t>> by_size_;
  int64_t end_ = 0;
};

}  // namespace

MemoryPlan plan_memory(llvm::ArrayRef<LiveRange> ranges) {
  MemoryPlan plan;
  plan.offsets.assign(ranges.size(), 0);
  std::vector<int32_t> by_start(ranges.size());
  std::iota(by_start.begin(), by_start.end(), 0);
  std::vector<int32_t> by_end = by_start;
  std::stable_sort(by_start.begin(), by_start.end(), [&](int32_t a, int32_t b) {
    return ranges[static_cast<size_t>(a)].first < ranges[static_cast<size_t>(b)].first;
  });
  std::stable_sort(by_end.begin(), by_end.end(), [&](int32_t a, int32_t b) {
    return ranges[static_cast<size_t>(a)].last < ranges[static_cast<size_t>(b)].last;
  });
  // what a range occupies: its own size, or the larger one whose memory it reused
  std::vector<int64_t> held(ranges.size());
  std::vector<bool> taken(ranges.size(), false);
  Holes holes;
  int64_t live = 0;
  size_t ended = 0;
  for (const int32_t i : by_start) {
    const LiveRange& range = ranges[static_cast<size_t>(i)];
    const auto index = static_cast<size_t>(i);
    for (; ended < by_end.size(); ++ended) {
      const auto e = static_cast<size_t>(by_end[ended]);
      if (ranges[e].last >= range.first) break;
      if (taken[e]) continue;
      holes.give_back(plan.offsets[e], held[e]);
      live -= held[e];
    }
    if (range.takes_over >= 0) {
      const auto from = static_cast<size_t>(range.takes_over);
      plan.offsets[index] = plan.offsets[from];
      held[index] = held[from];
      taken[from] = true;
    } else {
      held[index] = rounded(range.bytes);
      plan.offsets[index] = holes.take(held[index]);
      live += held[index];
      plan.peak_live = std::max(plan.peak_live, live);
    }
  }
  plan.bytes = holes.end();
  return plan;
}

}  // namespace millrace::executor
