#include "framework/base/pause_watch.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const PauseMeter::Clock::time_point kPauseStart{seconds(1000)};

TEST(PauseMeter, CountsGapsBetweenTicksOnly) {
  PauseMeter meter(kPauseStart);
  auto now = kPauseStart;
  for (int i = 0; i < 100; ++i) meter.tick(now += PauseMeter::kInterval);
  meter.tick(now += PauseMeter::kInterval + PauseMeter::kTolerance);  // late, but not paused
  EXPECT_EQ(meter.paused(now), seconds(0));
  meter.tick(now += seconds(6));
  EXPECT_EQ(meter.paused(now), seconds(6) - PauseMeter::kInterval);
  meter.tick(now += seconds(2));
  EXPECT_EQ(meter.paused(now), seconds(8) - 2 * PauseMeter::kInterval);
}

// The thread that judges may run again before the one that ticks.
TEST(PauseMeter, NoticesAPauseBeforeTheNextTick) {
  PauseMeter meter(kPauseStart);
  const auto now = kPauseStart + seconds(6);
  EXPECT_EQ(meter.paused(now), seconds(6) - PauseMeter::kInterval);
  meter.tick(now);
  EXPECT_EQ(meter.paused(now), seconds(6) - PauseMeter::kInterval);
}

TEST(PauseWatch, ADeadlinePassesAndAConditionEndsAWait) {
  const PauseWatch watch;
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock lock(mutex);
  const auto soon = PauseWatch::Clock::now() + milliseconds(20);
  EXPECT_FALSE(watch.wait_until(changed, lock, soon, [] { return false; }));
  EXPECT_GE(PauseWatch::Clock::now(), soon);
  EXPECT_TRUE(watch.wait_until(changed, lock, soon, [] { return true; }));
}

}  // namespace
}  // namespace millrace
