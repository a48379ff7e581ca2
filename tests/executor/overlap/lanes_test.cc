#include "executor/overlap/lanes.h"

#include <random>

#include <gtest/gtest.h>

namespace millrace::executor {
namespace {

// A graph with the given number of steps, each of which waits for up to three earlier ones.
Dependencies random_graph(std::mt19937& random, size_t steps) {
  Dependencies result;
  for (size_t s = 0; s < steps; ++s) {
    std::vector<int32_t> before;
    for (size_t k = random() % 4; k > 0 && s > 0; --k)
      before.push_back(static_cast<int32_t>(random() % s));
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    result.add(before);
  }
  return result;
}

// The value that a step computes from its predecessors; plain memory, so that the thread sanitizer
// detects a step that runs too early.
uint64_t value_of(const Dependencies& graph, size_t step, const std::vector<uint64_t>& values) {
  uint64_t result = step + 1;
  for (const int32_t before : graph.before(step))
    result = result * 31 + values[static_cast<size_t>(before)];
  return result;
}

TEST(Lanes, RunEachStepOnceAndBehindThoseItWaitsFor) {
  std::mt19937 random(11);
  for (const int threads : {1, 2, 4}) {
    kernels::CpuDevice device(threads);
    for (int round = 0; round < 50; ++round) {
      const size_t count = 1 + random() % 120;
      const Dependencies graph = random_graph(random, count);
      std::vector<uint64_t> expected(count);
      for (size_t s = 0; s < count; ++s) expected[s] = value_of(graph, s, expected);
      Lanes lanes(graph);
      for (int run = 0; run < 3; ++run) {
        std::vector<uint64_t> values(count, 0);
        std::vector<int> calls(count, 0);
        const Status status = lanes.run(device, threads, [&](int lane, size_t step) {
          EXPECT_LT(lane, threads);
          ++calls[step];
          values[step] = value_of(graph, step, values);
          return Ok();
        });
        ASSERT_TRUE(status.ok());
        EXPECT_EQ(values, expected);
        EXPECT_EQ(calls, std::vector<int>(count, 1));
      }
    }
  }
}

TEST(Lanes, StopAtAnErrorAndRunAgain) {
  Dependencies graph;
  for (int32_t s = 0; s < 20; ++s) graph.add(s == 0 ? std::vector<int32_t>{} : std::vector{s - 1});
  Lanes lanes(graph);
  kernels::CpuDevice device(2);
  int last = 0;
  const auto failing = [&](int /*lane*/, size_t step) -> Status {
    last = static_cast<int>(step);
    if (step == 7) return {StatusCode::kExecution, "step 7 fails"};
    return Ok();
  };
  const Status status = lanes.run(device, 2, failing);
  EXPECT_EQ(status.code(), StatusCode::kExecution);
  EXPECT_EQ(status.message(), "step 7 fails");
  EXPECT_EQ(last, 7);
  EXPECT_TRUE(lanes.run(device, 2, [](int, size_t) { return Ok(); }).ok());
}

}  // namespace
}  // namespace millrace::executor
