#include "executor/memory_plan.h"

#include <random>

#include <gtest/gtest.h>

#include "framework/tensor/buffer.h"

namespace millrace::executor {
namespace {

bool overlap_in_time(const LiveRange& a, const LiveRange& b) {
  return a.first <= b.last && b.first <= a.last;
}

bool overlap_in_space(int64_t a, int64_t a_bytes, int64_t b, int64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

TEST(MemoryPlan, HasNoBytesForNothing) {
  const MemoryPlan plan = plan_memory({});
  EXPECT_EQ(plan.bytes, 0);
}

TEST(MemoryPlan, UsesTheMemoryOfWhatHasEnded) {
  const MemoryPlan plan = plan_memory({{0, 1, 640}, {1, 2, 640}, {2, 3, 640}, {3, 4, 640}});
  EXPECT_EQ(plan.bytes, 2 * 640);
  EXPECT_EQ(plan.peak_live, 2 * 640);
  EXPECT_EQ(plan.offsets[0], plan.offsets[2]);
}

TEST(MemoryPlan, LetsAnOutputTakeOverTheMemoryOfItsInput) {
  const MemoryPlan plan = plan_memory({{0, 1, 640}, {1, 2, 640, 0}, {2, 3, 320, 1}});
  EXPECT_EQ(plan.bytes, 640);
  EXPECT_EQ(plan.offsets[1], plan.offsets[0]);
}

// For all ranges: two that are live at the same time do not overlap, unless one reuses the memory
// of the other.
TEST(MemoryPlan, KeepsLiveRangesApart) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<LiveRange> ranges(1 + random() % 60);
    for (size_t i = 0; i < ranges.size(); ++i) {
      LiveRange& range = ranges[i];
      range.first = static_cast<int64_t>(random() % 40);
      range.last = range.first + static_cast<int64_t>(random() % 10);
      range.bytes = static_cast<int64_t>(random() % 5000);
      for (size_t k = 0; k < i; ++k) {
        bool is_free = ranges[k].last == range.first && ranges[k].bytes >= range.bytes &&
                       ranges[k].first < range.first;
        for (const LiveRange& other : ranges)
          is_free = is_free && other.takes_over != static_cast<int32_t>(k);
        if (is_free && random() % 2 == 0) {
          range.takes_over = static_cast<int32_t>(k);
          break;
        }
      }
    }
    const MemoryPlan plan = plan_memory(ranges);
    EXPECT_GE(plan.bytes, plan.peak_live);
    for (size_t i = 0; i < ranges.size(); ++i) {
      EXPECT_EQ(plan.offsets[i] % static_cast<int64_t>(kBufferAlignment), 0);
      EXPECT_LE(plan.offsets[i] + ranges[i].bytes, plan.bytes);
      for (size_t k = 0; k < i; ++k) {
        const bool handed_over = ranges[i].takes_over == static_cast<int32_t>(k) ||
                                 ranges[k].takes_over == static_cast<int32_t>(i);
        if (handed_over || !overlap_in_time(ranges[i], ranges[k])) continue;
        EXPECT_FALSE(
            overlap_in_space(plan.offsets[i], ranges[i].bytes, plan.offsets[k], ranges[k].bytes))
            << "ranges " << i << " and " << k << " in round " << round;
      }
    }
  }
}

}  // namespace
}  // namespace millrace::executor
