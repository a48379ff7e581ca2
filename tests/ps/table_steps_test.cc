#include "ps/table/table_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/table/dense_table.h"
#include "ps/table/rate_table.h"
#include "ps/table/sparse_table.h"
#include "ps/table/typed_table.h"

// Typed tables in synchronous steps: one push per key with the mean over the trainers that arrived,
// and state that snapshots can restore.

namespace millrace::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::vector<float>;
using Keys = std::vector<int64_t>;

constexpr int kTable = 3;

SparseTableOptions embedding_table_steps(const std::string& entry = "none") {
  SparseTableOptions options;
  options.table_id = kTable;
  options.accessor.embedx_dim = 2;
  options.accessor.embedx_rule.kind = SparseRuleOptions::Kind::kNaive;
  options.accessor.embedx_rule.learning_rate = 1;
  options.entry = *parse_entry(entry);
  return options;
}

Value keys_of(const Keys& keys) {
  Value value;
  auto& tensor = value.as<Tensor>();
  EXPECT_TRUE(tensor.resize(DType::kInt64, {static_cast<int64_t>(keys.size())}).ok());
  std::copy(keys.begin(), keys.end(), tensor.data<int64_t>());
  return value;
}

Value rows_of_table_steps(const Floats& numbers, int64_t width) {
  Value value;
  auto& tensor = value.as<Tensor>();
  EXPECT_TRUE(
      tensor.resize(DType::kFloat32, {static_cast<int64_t>(numbers.size()) / width, width}).ok());
  std::copy(numbers.begin(), numbers.end(), tensor.data<float>());
  return value;
}

class StepsOfTables : public ::testing::Test {
 protected:
  void make(const SparseTableOptions& options, int64_t shrink_every = 0) {
    auto table = SparseTable::create(options);
    ASSERT_TRUE(table.ok()) << table.status().to_string();
    table_ = *std::move(table);
    steps_.add(*table_, shrink_every);
  }
  Status keep(int trainer, const Keys& keys, const Floats& rows, int64_t width) {
    const Value k = keys_of(keys);
    const Value r = rows_of_table_steps(rows, width);
    MILLRACE_RETURN_IF_ERROR(steps_.keep(trainer, {table_keys_item(kTable), &k, nullptr}));
    return steps_.keep(trainer, {table_rows_item(kTable), &r, nullptr});
  }
  Floats pull(const Keys& keys) {
    Floats rows(keys.size() * static_cast<size_t>(table_->accessor().pull_floats()));
    EXPECT_TRUE(table_->pull(keys, rows.data(), {}, false).ok());
    return rows;
  }

  TableSteps steps_{3};
  std::unique_ptr<SparseTable> table_;
};

TEST_F(StepsOfTables, AKeyGetsTheMeanOverWhoCame) {
  make(embedding_table_steps());
  ASSERT_TRUE(keep(0, {7, 9}, {2, 4, 1, 6, 8, 1}, 3).ok());
  ASSERT_TRUE(keep(1, {9}, {2, 2, 1}, 3).ok());
  ASSERT_TRUE(keep(2, {7}, {100, 100, 1}, 3).ok());
  const std::vector<char> two_came{1, 1, 0};
  ASSERT_TRUE(steps_.apply(two_came, 1).ok());
  EXPECT_THAT(pull({7, 9}), ElementsAre(-1, -2, -4, -5));
  ASSERT_TRUE(steps_.apply(two_came, 2).ok());  // no gradients of the previous step are left
  EXPECT_THAT(pull({7, 9}), ElementsAre(-1, -2, -4, -5));
}

TEST_F(StepsOfTables, WhoIsDroppedCountsForNothing) {
  make(embedding_table_steps());
  ASSERT_TRUE(keep(0, {7}, {2, 4, 1}, 3).ok());
  ASSERT_TRUE(keep(1, {7}, {10, 10, 1}, 3).ok());
  steps_.drop(1);
  for (const int nobody : {-1, 3}) steps_.drop(nobody);
  const std::vector<char> all{1, 1, 0};
  ASSERT_TRUE(steps_.apply(all, 1).ok());
  EXPECT_THAT(pull({7}), ElementsAre(-1, -2));
}

TEST_F(StepsOfTables, AccessesCountWhenTheStepIsApplied) {
  make(embedding_table_steps("count_filter_entry:3"));
  const std::vector<char> one{1, 0, 0};
  for (int step = 1; step <= 2; ++step) {
    ASSERT_TRUE(keep(0, {7}, {1, 1, 2}, 3).ok());  // two accesses
    ASSERT_TRUE(steps_.apply(one, step).ok());
    EXPECT_THAT(pull({7}), ElementsAre(0, 0)) << step;
    EXPECT_EQ(table_->size(), step == 1 ? 0 : 1);
  }
  ASSERT_TRUE(keep(0, {7}, {1, 1, 1}, 3).ok());
  ASSERT_TRUE(steps_.apply(one, 3).ok());
  EXPECT_THAT(pull({7}), ElementsAre(-1, -1));
}

TEST_F(StepsOfTables, ShowsAndClicksAreAddedUpAndFade) {
  SparseTableOptions options = embedding_table_steps();
  options.accessor.kind = AccessorOptions::Kind::kCtrCommon;
  options.accessor.fea_dim = 5;
  options.accessor.show_click_decay_rate = 0.5F;
  options.accessor.delete_threshold = 0.25F;
  make(options, 2);
  const std::vector<char> two{1, 1, 0};
  const Floats row{8, 4, 2, 0, 0, 0, 1};  // slot, show, click, gradients, accesses
  ASSERT_TRUE(keep(0, {7}, row, 7).ok());
  ASSERT_TRUE(keep(1, {7}, row, 7).ok());
  ASSERT_TRUE(steps_.apply(two, 1).ok());
  const Floats before = pull({7});
  EXPECT_EQ(before[0], 8);
  EXPECT_EQ(before[1], 4);
  ASSERT_TRUE(steps_.apply(two, 2).ok());  // the end of a day
  EXPECT_EQ(pull({7})[0], 4);
  steps_.set_steps_before(1);  // of other servers: their days continue
  ASSERT_TRUE(steps_.apply(two, 2).ok());
  EXPECT_EQ(pull({7})[0], 4);
  ASSERT_TRUE(steps_.apply(two, 3).ok());
  EXPECT_EQ(pull({7})[0], 2);
  for (int step = 4; step <= 12; ++step) ASSERT_TRUE(steps_.apply(two, step).ok());
  EXPECT_EQ(table_->size(), 0);
}

// Dense gradients are averaged over the trainers that arrived, with the rate of the step.
TEST(DenseSteps, GetTheMeanOverWhoCameAndTheRateOfTheStep) {
  RateTable rate(0.5F);
  DenseTableOptions options;
  options.table_id = kTable;
  options.elements = 2;
  options.learning_rate = 1;
  options.sync = true;
  const auto table = *DenseTable::create(options);
  table->share_rate(rate.rate());
  TableSteps steps(3);
  steps.add(*table);
  steps.add(kTable + 1, rate);
  const auto keep = [&](int trainer, const std::string& name, const Floats& numbers) {
    const Value value = rows_of_table_steps(numbers, static_cast<int64_t>(numbers.size()));
    return steps.keep(trainer, {name, &value, nullptr});
  };
  const auto parameters = [&] {
    Floats numbers(2);
    EXPECT_TRUE(table->pull(numbers).ok());
    return numbers;
  };
  const std::string grads = table_grads_item(kTable);
  ASSERT_TRUE(keep(0, grads, {2, 4}).ok());
  ASSERT_TRUE(keep(1, grads, {6, 8}).ok());
  ASSERT_TRUE(keep(2, grads, {100, 100}).ok());  // did not come to the barrier
  EXPECT_THAT(parameters(), ElementsAre(0, 0));
  ASSERT_TRUE(steps.apply(std::vector<char>{1, 1, 0}, 1).ok());
  EXPECT_THAT(parameters(), ElementsAre(-2, -3));
  ASSERT_TRUE(steps.apply(std::vector<char>{1, 1, 0}, 2).ok());  // no gradients are left
  EXPECT_THAT(parameters(), ElementsAre(-2, -3));
  ASSERT_TRUE(keep(0, grads, {2, 4}).ok());
  ASSERT_TRUE(keep(1, grads, {6, 8}).ok());
  steps.drop(1);
  ASSERT_TRUE(keep(0, table_rate_item(kTable + 1), {1}).ok());
  ASSERT_TRUE(steps.apply(std::vector<char>{1, 1, 0}, 3).ok());
  EXPECT_THAT(parameters(), ElementsAre(-4, -7));
  EXPECT_EQ(keep(0, grads, {1}).message(),
            "'@TABLE@3@GRADS' of trainer 0: expected f32(2), found f32 [1, 1]");
  EXPECT_THAT(keep(0, table_rate_item(kTable), {1}).message(),
              HasSubstr("this server has no typed table for '@TABLE@3@RATE' of trainer 0"));
}

TEST_F(StepsOfTables, WhatDoesNotFitIsRefused) {
  make(embedding_table_steps());
  const Value keys = keys_of({1, 2});
  const Value rows = rows_of_table_steps({1, 1, 1}, 3);
  const Value narrow = rows_of_table_steps({1, 1}, 2);
  const auto message = [&](const std::string& name, const Value* value) {
    return steps_.keep(1, {name, value, nullptr}).message();
  };
  EXPECT_THAT(message(table_rows_item(kTable), &keys), HasSubstr("expected f32(n, 3), found"));
  EXPECT_THAT(message(table_keys_item(kTable), &rows), HasSubstr("expected i64(n), found"));
  EXPECT_THAT(message(table_rows_item(kTable), &narrow), HasSubstr("f32(n, 3)"));
  EXPECT_THAT(message(table_rows_item(4), &rows), HasSubstr("no typed table"));
  EXPECT_THAT(message("@TABLE@3@OTHER", &rows), HasSubstr("no typed table"));
  ASSERT_TRUE(steps_.keep(1, {table_keys_item(kTable), &keys, nullptr}).ok());
  EXPECT_THAT(message(table_rows_item(kTable), &rows), HasSubstr("expected as many as keys"));
}

TEST(SparseTableState, ComesBackWithKeysThatWait) {
  const auto table = *SparseTable::create(embedding_table_steps("count_filter_entry:4"));
  Floats rows(4);
  ASSERT_TRUE(table->pull(Keys{5, 6}, rows.data(), std::vector<int32_t>{4, 3}).ok());
  ASSERT_TRUE(table->push(Keys{5}, Floats{1, 2}.data()).ok());
  auto state = table->state();
  ASSERT_TRUE(state.ok()) << state.status().to_string();

  const auto other = *SparseTable::create(embedding_table_steps("count_filter_entry:4"));
  ASSERT_TRUE(other->pull(Keys{8}, rows.data(), std::vector<int32_t>{9}).ok());
  ASSERT_TRUE(other->set_state(*state).ok());
  EXPECT_EQ(other->size(), 1);
  ASSERT_TRUE(other->pull(Keys{5, 6}, rows.data()).ok());  // the fourth access of 6
  EXPECT_THAT(rows, ElementsAre(-1, -2, 0, 0));
  EXPECT_EQ(other->size(), 2);
  ASSERT_TRUE(other->clear().ok());
  EXPECT_EQ(other->size(), 0);
}

TEST(SparseTableState, OfAnotherTableIsRefused) {
  const auto table = *SparseTable::create(embedding_table_steps());
  ASSERT_TRUE(table->push(Keys{5}, Floats{1, 2}.data()).ok());
  SparseTableOptions wide = embedding_table_steps();
  wide.accessor.embedx_dim = 4;
  const auto other = *SparseTable::create(wide);
  EXPECT_THAT(other->set_state(*table->state()).message(), HasSubstr("'rows'"));
  EXPECT_THAT(other->set_state({}).message(), HasSubstr("found nothing"));
}

}  // namespace
}  // namespace millrace::ps
