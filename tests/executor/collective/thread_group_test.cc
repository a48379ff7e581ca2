// Groups of threads: every call has the right result, and errors are reported.

#include <cmath>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/collective/shared_group.h"
#include "tests/executor/collective/group_checks.h"

namespace millrace::executor {
namespace {

using ::testing::HasSubstr;
using Groups = std::vector<std::unique_ptr<CollectiveGroup>>;

Groups groups_of_thread_group(int size, int64_t timeout_ms = 20'000) {
  auto groups = make_thread_groups(size, timeout_ms);
  EXPECT_TRUE(groups.ok());
  return std::move(groups).value();
}

void on_ranks(Groups& groups, const std::function<void(CollectiveGroup&)>& body) {
  std::vector<std::thread> threads;
  for (auto& group : groups) threads.emplace_back([&body, &group] { body(*group); });
  for (std::thread& thread : threads) thread.join();
}

std::byte* raw_thread_group(std::vector<float>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

TEST(ThreadGroup, AnswersEveryCall) {
  for (const int size : {1, 2, 3, 5}) {
    Groups groups = groups_of_thread_group(size);
    on_ranks(groups, [](CollectiveGroup& group) {
      EXPECT_EQ(check_group(group), "");
      EXPECT_EQ(check_subgroups(group), "");
    });
  }
}

TEST(ThreadGroup, AddsInTheOrderOfRanks) {
  Groups groups = groups_of_thread_group(3);
  // (1e8 + 1) - 1e8 in float is 0, 1e8 - 1e8 + 1 is 1
  for (const size_t count : {size_t{4}, size_t{100'000}}) {
    on_ranks(groups, [&](CollectiveGroup& group) {
      const float own = group.rank() == 0 ? 1e8F : (group.rank() == 1 ? 1.0F : -1e8F);
      std::vector<float> data(count, own);
      ASSERT_TRUE(
          group.all_reduce(DType::kFloat32, raw_thread_group(data), static_cast<int64_t>(count))
              .ok());
      EXPECT_THAT(data, ::testing::Each(0.0F));
    });
  }
}

TEST(ThreadGroup, NamesTheRankThatDoesNotCome) {
  Groups groups = groups_of_thread_group(3, 200);
  on_ranks(groups, [](CollectiveGroup& group) {
    if (group.rank() == 1) return;
    std::vector<float> data(10);
    const Status status = group.all_reduce(DType::kFloat32, raw_thread_group(data), 10);
    EXPECT_EQ(status.code(), StatusCode::kDistributed);
    EXPECT_THAT(status.message(), HasSubstr("for rank 1, which has not arrived"));
    EXPECT_THAT(group.barrier().to_string(), HasSubstr("broken by: waited"));
  });
  // the late rank gets the reason
  std::vector<float> data(10);
  const Status late = groups[1]->barrier();
  EXPECT_EQ(late.code(), StatusCode::kDistributed);
}

TEST(ThreadGroup, NoticesThatARankHasLeft) {
  Groups groups = groups_of_thread_group(2, 20'000);
  groups[1].reset();
  EXPECT_THAT(groups[0]->barrier().message(), HasSubstr("lost rank 1: it has left the group"));
}

TEST(ThreadGroup, TellsTheOthersOfAFailure) {
  Groups groups = groups_of_thread_group(2, 20'000);
  groups[1]->abort({StatusCode::kExecution, "op 'mul' has failed"});
  EXPECT_THAT(groups[0]->barrier().message(), HasSubstr("op 'mul' has failed"));
}

TEST(ThreadGroup, NoticesThatRanksDoNotAgree) {
  Groups groups = groups_of_thread_group(2);
  on_ranks(groups, [](CollectiveGroup& group) {
    std::vector<float> data(20);
    const Status status =
        group.all_reduce(DType::kFloat32, raw_thread_group(data), group.rank() == 0 ? 10 : 20);
    EXPECT_THAT(status.message(), HasSubstr("the ranks do not agree"));
    EXPECT_THAT(status.message(), HasSubstr("all_reduce (sum) of 20 elements of f32"));
  });
}

TEST(ThreadGroup, RefusesBadArguments) {
  const auto group = [] { return std::move(groups_of_thread_group(1)[0]); };
  std::vector<float> data(4);
  EXPECT_THAT(group()->all_reduce(DType::kBool, raw_thread_group(data), 4).message(),
              HasSubstr("cannot combine elements of type bool"));
  EXPECT_THAT(group()->broadcast(raw_thread_group(data), 4, 1).message(),
              HasSubstr("expected a root in [0, 1), found 1"));
  EXPECT_THAT(group()->send(raw_thread_group(data), 4, 0).message(), HasSubstr("sends to itself"));
  EXPECT_THAT(group()->subgroup({0, 0}).status().message(), HasSubstr("listed twice"));
  EXPECT_FALSE(make_thread_groups(0).ok());
  EXPECT_FALSE(make_thread_groups(65).ok());
}

TEST(ThreadGroup, ChoosesANanAsLargest) {
  Groups groups = groups_of_thread_group(2);
  on_ranks(groups, [](CollectiveGroup& group) {
    std::vector<float> data{group.rank() == 0 ? NAN : 1.0F, group.rank() == 1 ? NAN : 1.0F};
    ASSERT_TRUE(group.all_reduce(DType::kFloat32, raw_thread_group(data), 2, Reduction::kMax).ok());
    EXPECT_TRUE(std::isnan(data[0]));
    EXPECT_TRUE(std::isnan(data[1]));
  });
}

}  // namespace
}  // namespace millrace::executor
