// Equal ids have one position, which is that of their first occurrence among the distinct ones.

#include "framework/distinct_ids.h"

#include <cstdint>
#include <limits>
#include <map>
#include <random>

#include <gmock/gmock.h>

namespace millrace {
namespace {

TEST(DistinctIds, AgreeWithAMap) {
  std::mt19937_64 random(5);
  DistinctIds distinct;
  for (int round = 0; round < 400; ++round) {
    const size_t count = random() % 300;
    const uint64_t range = uint64_t{1} << (random() % 63 + 1);
    const auto step = static_cast<uint64_t>(uint64_t{1} << (random() % 60));
    distinct.begin(count);
    std::map<int64_t, size_t> seen;
    for (size_t i = 0; i < count; ++i) {
      const auto id = static_cast<int64_t>(random() % range * step);
      const size_t known = distinct.size();
      const auto [entry, added] = seen.try_emplace(id, known);
      ASSERT_EQ(distinct.add(id), entry->second);
      ASSERT_EQ(distinct.size(), known + (added ? 1 : 0));
      ASSERT_EQ(distinct.ids()[entry->second], id);
    }
  }
}

TEST(DistinctIds, TakesEveryNumberAndStartsAgain) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  DistinctIds distinct;
  for (int round = 0; round < 2; ++round) {
    distinct.begin(4);
    EXPECT_EQ(distinct.add(kLeast), 0U);
    EXPECT_EQ(distinct.add(-1), 1U);
    EXPECT_EQ(distinct.add(0), 2U);
    EXPECT_EQ(distinct.add(-1), 1U);
    EXPECT_THAT(distinct.ids(), ::testing::ElementsAre(kLeast, -1, 0));
  }
  distinct.begin(0);
  EXPECT_EQ(distinct.size(), 0U);
}

}  // namespace
}  // namespace millrace
