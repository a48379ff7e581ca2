#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/parallel/merge_fetches.h"
#include "executor/parallel/split_feeds.h"
#include "tests/executor/parallel/small_job.h"

namespace millrace::executor {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> divided(int64_t rows, int count, SplitRule rule) {
  auto result = divide_rows(rows, count, rule, {});
  EXPECT_TRUE(result.ok());
  return *result;
}

TEST(SplitTest, FloorGivesTheSurplusToTheLast) {
  EXPECT_THAT(divided(3, 2, SplitRule::kFloor), ElementsAre(1, 2));
  EXPECT_THAT(divided(11, 4, SplitRule::kFloor), ElementsAre(2, 2, 2, 5));
  EXPECT_THAT(divided(2, 4, SplitRule::kFloor), ElementsAre(1, 1, 0, 0));
}

// If the rule of the original runs out of rows, the last devices get one row each.
TEST(SplitTest, CeilLeavesARowForEveryDevice) {
  EXPECT_THAT(divided(3, 2, SplitRule::kCeil), ElementsAre(2, 1));
  EXPECT_THAT(divided(17, 4, SplitRule::kCeil), ElementsAre(5, 5, 5, 2));
  EXPECT_THAT(divided(5, 4, SplitRule::kCeil), ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(divided(9, 4, SplitRule::kCeil), ElementsAre(3, 3, 2, 1));
}

TEST(SplitTest, CutsSequencesNotRows) {
  const Value value = tensor_value({7, 1}, {0, 1, 2, 3, 4, 5, 6}, Lod({{0, 2, 3}, {0, 3, 5, 7}}));
  const Tensor part = slice_rows(*value.get_if<Tensor>(), 1, 2);
  EXPECT_EQ(part.lod(), Lod({{0, 1}, {0, 2}}));
  EXPECT_THAT(part.values<float>(), ElementsAre(5, 6));
}

TEST(MergeTest, JoinsRowsAndSequences) {
  const Value a = tensor_value({3, 1}, {0, 1, 2}, Lod({{0, 1, 3}}));
  const Value b = tensor_value({1, 1}, {3}, Lod({{0, 1}}));
  const Value none;
  Value whole;
  const Status status = merge_parts("x", {&a, &none, &b}, whole);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(floats(whole), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(whole.get_if<Tensor>()->lod(), Lod({{0, 1, 3, 4}}));
}

TEST(MergeTest, NumbersBecomeAVector) {
  const Value a = tensor_value({}, {1});
  const Value b = tensor_value({}, {2});
  Value whole;
  ASSERT_TRUE(merge_parts("x", {&a, &b}, whole).ok());
  EXPECT_THAT(whole.get_if<Tensor>()->dims(), ElementsAre(2));
}

TEST(MergeTest, JoinsArraysByElement) {
  Value parts[2];
  for (int d = 0; d < 2; ++d) {
    auto& array = parts[d].as<TensorArray>();
    array.resize(static_cast<size_t>(d) + 1);
    for (Tensor& element : array) {
      Value value = tensor_value({1}, {static_cast<float>(d)});
      element = std::move(value.as<Tensor>());
    }
  }
  Value whole;
  ASSERT_TRUE(merge_parts("x", {&parts[0], &parts[1]}, whole).ok());
  const auto& array = *whole.get_if<TensorArray>();
  ASSERT_EQ(array.size(), 2U);
  EXPECT_THAT(array[0].values<float>(), ElementsAre(0, 1));
  EXPECT_THAT(array[1].values<float>(), ElementsAre(1));
}

TEST(MergeTest, RefusesSelectedRows) {
  Value rows;
  rows.as<SelectedRows>().rows = {1};
  rows.as<SelectedRows>().value = std::move(tensor_value({1, 1}, {1}).as<Tensor>());
  Value whole;
  EXPECT_EQ(merge_parts("x", {&rows}, whole).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace::executor
