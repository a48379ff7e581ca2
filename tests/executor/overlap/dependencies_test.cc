#include "executor/overlap/dependencies.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> before(const Dependencies& dependencies, size_t step) {
  return dependencies.before(step).vec();
}

TEST(Dependencies, AReaderWaitsForTheLastWriter) {
  const Dependencies found =
      find_dependencies({{{0, 1, true}}, {{0, 1, true}}, {{0, 1, false}}, {{0, 1, false}}});
  EXPECT_THAT(before(found, 0), IsEmpty());
  EXPECT_THAT(before(found, 1), ElementsAre(0));
  EXPECT_THAT(before(found, 2), ElementsAre(1));
  EXPECT_THAT(before(found, 3), ElementsAre(1));
}

TEST(Dependencies, AWriterWaitsForAllReaders) {
  const Dependencies found =
      find_dependencies({{{0, 1, true}}, {{0, 1, false}}, {{0, 1, false}}, {{0, 1, true}}});
  EXPECT_THAT(before(found, 3), ElementsAre(0, 1, 2));
}

TEST(Dependencies, PartsOfAPlaceCount) {
  const Dependencies found = find_dependencies({{{0, 10, true}},
                                                {{10, 20, true}},
                                                {{5, 15, false}},
                                                {{0, 5, true}},
                                                {{14, 16, true}},
                                                {{0, 20, false}}});
  EXPECT_THAT(before(found, 1), IsEmpty());
  EXPECT_THAT(before(found, 2), ElementsAre(0, 1));
  EXPECT_THAT(before(found, 3), ElementsAre(0));
  EXPECT_THAT(before(found, 4), ElementsAre(1, 2));
  EXPECT_THAT(before(found, 5), ElementsAre(0, 1, 3, 4));
}

TEST(Dependencies, AStepDoesNotWaitForItself) {
  const Dependencies found =
      find_dependencies({{{0, 4, false}, {0, 4, true}, {2, 6, true}}, {{3, 5, false}}});
  EXPECT_THAT(before(found, 0), IsEmpty());
  EXPECT_THAT(before(found, 1), ElementsAre(0));
}

TEST(Dependencies, NothingIsUsedByAnEmptyRange) {
  const Dependencies found = find_dependencies({{{3, 3, true}}, {{3, 3, true}}, {{0, 9, true}}});
  EXPECT_THAT(before(found, 1), IsEmpty());
  EXPECT_THAT(before(found, 2), IsEmpty());
}

// For all plans: two steps of which one writes what the other uses are ordered, directly or through
// other steps, and each step waits only for steps with which it shares a var.
TEST(Dependencies, OrderAllConflicts) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<Access>> steps(2 + random() % 30);
    for (std::vector<Access>& step : steps) {
      for (size_t i = random() % 4 + 1; i > 0; --i) {
        const auto begin = static_cast<int64_t>(random() % 40);
        step.push_back({begin, begin + static_cast<int64_t>(random() % 8), random() % 3 == 0});
      }
    }
    const Dependencies found = find_dependencies(steps);
    std::vector<std::vector<bool>> waits(steps.size(), std::vector<bool>(steps.size(), false));
    for (size_t s = 0; s < steps.size(); ++s) {
      for (const int32_t other : found.before(s)) {
        const auto o = static_cast<size_t>(other);
        ASSERT_LT(o, s);
        waits[s][o] = true;
        for (size_t k = 0; k < o; ++k) waits[s][k] = waits[s][k] || waits[o][k];
      }
    }
    for (size_t b = 0; b < steps.size(); ++b) {
      for (size_t a = 0; a < b; ++a) {
        bool conflict = false;
        for (const Access& x : steps[a]) {
          for (const Access& y : steps[b]) {
            conflict = conflict || ((x.writes || y.writes) && x.begin < y.end && y.begin < x.end &&
                                    x.begin < x.end && y.begin < y.end);
          }
        }
        const llvm::ArrayRef<int32_t> direct = found.before(b);
        const bool is_direct =
            std::find(direct.begin(), direct.end(), static_cast<int32_t>(a)) != direct.end();
        EXPECT_TRUE(waits[b][a] || !conflict) << a << " and " << b << " in round " << round;
        EXPECT_TRUE(conflict || !is_direct) << a << " and " << b << " in round " << round;
      }
    }
  }
}

}  // namespace
}  // namespace millrace::executor
