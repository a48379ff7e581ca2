#include "executor/overlap/groups.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

// Which steps run concurrently, computed from times and dependencies only: no program, no kernels.

namespace millrace::executor {
namespace {

struct Given {
  double one_us;
  double all_us;
  std::vector<int32_t> before;
  bool alone = false;
};

std::string plan(const std::vector<Given>& steps, int threads = 2) {
  std::vector<OpWork> work;
  Dependencies dependencies;
  for (const Given& step : steps) {
    work.push_back({step.one_us, step.all_us, step.alone});
    dependencies.add(step.before);
  }
  std::string text;
  for (const Group& group : choose_groups(work, dependencies, threads))
    text += fmt::format("{}-{} saves {:.0f}\n", group.first, group.end - 1, group.gain_us);
  return text;
}

TEST(Groups, HoldStepsThatDoNotGainByThreads) {
  // 100 us each, 400 in sequence
  EXPECT_EQ(plan({{100, 100, {}}, {100, 100, {}}, {100, 100, {}}, {100, 100, {}}}),
            "0-3 saves 200\n");
}

TEST(Groups, LeaveStepsThatUseAllThreadsWell) {
  EXPECT_EQ(plan({{100, 51, {}}, {100, 51, {}}, {100, 51, {}}, {100, 51, {}}}), "");
}

TEST(Groups, LeaveStepsThatWaitForEachOther) {
  EXPECT_EQ(plan({{100, 100, {}}, {100, 100, {0}}, {100, 100, {1}}, {100, 100, {2}}}), "");
}

TEST(Groups, NeedMoreThanAHandOverCosts) {
  EXPECT_EQ(plan({{9, 9, {}}, {9, 9, {}}}), "");
}

TEST(Groups, AreNotMadeForOneThread) {
  EXPECT_EQ(plan({{100, 100, {}}, {100, 100, {}}}, 1), "");
}

TEST(Groups, EndBeforeAStepThatRunsAlone) {
  EXPECT_EQ(plan({{100, 100, {}},
                  {100, 100, {}},
                  {100, 100, {}, true},
                  {100, 100, {}},
                  {100, 100, {}},
                  {500, 260, {}}}),
            "0-1 saves 100\n3-4 saves 100\n");
}

// The backward pass of a net of convolutions: a chain of image gradients, in parallel to filter
// gradients, each followed by an update that is as fast on one thread as on two.
TEST(Groups, PutUpdatesBesideAChainOfGradients) {
  std::vector<Given> steps;
  for (int32_t layer = 0; layer < 4; ++layer) {
    const int32_t images = 3 * layer;
    steps.push_back({200, 110, layer == 0 ? std::vector<int32_t>{} : std::vector{images - 3}});
    steps.push_back({100, 55, layer == 0 ? std::vector<int32_t>{} : std::vector{images - 3}});
    steps.push_back({80, 75, {images + 1}});
  }
  EXPECT_EQ(plan(steps), "2-11 saves 174\n");
  EXPECT_EQ(plan(steps), plan(steps));
}

}  // namespace
}  // namespace millrace::executor
