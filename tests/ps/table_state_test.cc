#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/table/dense_table.h"
#include "ps/table/rate_table.h"
#include "ps/table/sparse_geo_table.h"
#include "ps/table/table_handler.h"
#include "ps/table/tensor_table.h"
#include "tests/ps/direct_server.h"

// What snapshots of fleet jobs have of their tables, and servers that are started again.

namespace millrace::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

std::unique_ptr<DenseTable> adam_of_three(bool sync = false) {
  DenseTableOptions options;
  options.table_id = 2;
  options.elements = 3;
  options.rule = DenseTableOptions::Rule::kAdam;
  options.learning_rate = 0.5F;
  options.sync = sync;
  return *DenseTable::create(options);
}

Floats elements_of(const DenseTable& table) {
  Floats elements(3);
  EXPECT_TRUE(table.pull(elements).ok());
  return elements;
}

TEST(DenseTableState, ContinuesWithTheSameBits) {
  const auto table = adam_of_three();
  EXPECT_FALSE(table->is_set());
  ASSERT_TRUE(table->set(Floats{1, 2, 3}).ok());
  ASSERT_TRUE(table->push(Floats{1, -1, 2}).ok());
  auto state = table->state();
  ASSERT_TRUE(state.ok()) << state.status().to_string();
  ASSERT_TRUE(table->push(Floats{3, 1, 1}).ok());
  const auto other = adam_of_three();
  ASSERT_TRUE(other->set_state(*state).ok());
  EXPECT_TRUE(other->is_set());
  ASSERT_TRUE(other->push(Floats{3, 1, 1}).ok());
  EXPECT_EQ(elements_of(*other), elements_of(*table));

  state->erase("Moment1");
  EXPECT_EQ(other->set_state(*state).message(),
            "state 'Moment1' of a table: expected 3 elements, found nothing");
}

TEST(RateTableState, IsTheRate) {
  RateTable table(0.5F);
  const auto state = table.state();
  ASSERT_TRUE(state.ok());
  RateTable other(1);
  ASSERT_TRUE(other.set_state(*state).ok());
  EXPECT_EQ(*other.rate(), 0.5F);
  EXPECT_THAT(other.set_state({}).message(), HasSubstr("'rate'"));
}

TEST(TensorTableState, HasTheStepsOfEachTrainer) {
  const RateOfStep rate_of = [](int64_t step) { return StatusOr<float>(0.5F * float(step)); };
  TensorTable table(2, rate_of);
  ASSERT_TRUE(table.count(0, 3).ok());
  ASSERT_TRUE(table.count(1, 4).ok());
  auto state = table.state();
  ASSERT_TRUE(state.ok()) << state.status().to_string();
  TensorTable other(2, rate_of);
  ASSERT_TRUE(other.set_state(*state).ok());
  EXPECT_EQ(other.steps(), 7);
  EXPECT_EQ(*other.rate(), 3.0F);
  EXPECT_THAT(TensorTable(3, rate_of).set_state(*state).message(),
              HasSubstr("expected 3 elements"));
  *(*state)["steps"].as<Tensor>().data<int64_t>() = -1;
  EXPECT_THAT(other.set_state(*state).message(), HasSubstr("negative"));
  EXPECT_EQ(other.steps(), 7);
}

class Stateless final : public Table {
 public:
  [[nodiscard]] std::string_view table_class() const override { return "Stateless"; }
  Status pull(PullKind, const TableCall&, Value&) override { return Ok(); }
  Status push(PushKind, const TableCall&) override { return Ok(); }
  [[nodiscard]] int64_t size() const override { return 0; }
  [[nodiscard]] int64_t memory_bytes() const override { return 0; }
};

TEST(TableState, OfAClassWithoutItIsRefused) {
  Stateless table;
  EXPECT_EQ(table.state().status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(table.set_state({}).message(), HasSubstr("'Stateless'"));
}

// The server does not know any more which rows its trainers have.
TEST(GeoTableState, GivesEveryTrainerAllRows) {
  SparseTableOptions options;
  options.accessor.kind = AccessorOptions::Kind::kCommMerge;
  options.accessor.embedx_dim = 1;
  const auto table = *SparseGeoTable::create(options, 2);
  const std::vector<int64_t> keys{4, 7};
  ASSERT_TRUE(table->set(keys, Floats{1, 2}.data()).ok());
  const auto state = table->state();
  ASSERT_TRUE(state.ok());
  SelectedRows changed;
  ASSERT_TRUE(table->pull_changed(0, changed, 5).ok());
  EXPECT_TRUE(changed.rows.empty());
  ASSERT_TRUE(table->set_state(*state).ok());
  for (const int trainer : {0, 1}) {
    ASSERT_TRUE(table->pull_changed(trainer, changed, 5).ok());
    EXPECT_EQ(changed.rows, keys);
    EXPECT_THAT(changed.value.values<float>(), ElementsAre(1, 2));
  }
}

class HandlerReadiness : public ::testing::Test {
 protected:
  static Status pull(TableHandler& tables) {
    Reply reply;
    test::ReplyInto into(reply);
    return tables.pull({}, protocol::Pull{2, PullKind::kPlain, {}}, into);
  }
  static Status push(TableHandler& tables, PushKind kind) {
    Value value;
    EXPECT_TRUE(value.as<Tensor>().resize(DType::kFloat32, {3}).ok());
    std::fill_n(value.as<Tensor>().data<float>(), 3, 1.0F);
    return tables.push({}, protocol::Push{2, kind, {{"", &value, nullptr}}});
  }
};

TEST_F(HandlerReadiness, AsynchronousTablesWaitForTheBarrierAfterTheFirstValues) {
  TableHandler tables(1);
  ASSERT_TRUE(tables.add(2, adam_of_three()).ok());
  tables.wait_for_values();
  EXPECT_THAT(pull(tables).message(), HasSubstr("have no values: trainer 0 sends them"));
  EXPECT_THAT(push(tables, PushKind::kUpdate).message(), HasSubstr("have no values"));
  ASSERT_TRUE(push(tables, PushKind::kValues).ok());
  EXPECT_FALSE(tables.is_ready());
  ASSERT_TRUE(tables.arrive({CommBarrier::kInit, 1}, 0, std::chrono::steady_clock::now()).ok());
  EXPECT_TRUE(tables.is_ready());
  EXPECT_TRUE(pull(tables).ok());
  EXPECT_TRUE(push(tables, PushKind::kUpdate).ok());
}

TEST_F(HandlerReadiness, TablesOfStepsTakeGradientsInStepsOnly) {
  TableHandler tables(1);
  ASSERT_TRUE(tables.add_in_steps(adam_of_three(true)).ok());
  tables.wait_for_values();
  EXPECT_FALSE(tables.is_ready());
  ASSERT_TRUE(push(tables, PushKind::kValues).ok());
  EXPECT_TRUE(tables.is_ready());
  EXPECT_THAT(push(tables, PushKind::kUpdate).message(),
              HasSubstr("are sent with the send barrier of a step"));
}

// A trainer that is at phase 3 has passed phase 2, at which another one still waits.
TEST_F(HandlerReadiness, BarriersContinueAfterARestart) {
  TableHandler tables(2);
  const auto arrive = [&](int trainer, int64_t phase) {
    return tables.arrive({CommBarrier::kWorker, phase}, trainer,
                         std::chrono::steady_clock::now() + std::chrono::seconds(20));
  };
  EXPECT_THAT(arrive(0, 2).message(), HasSubstr("is at phase 2, expected 1"));
  tables.resume();
  std::thread behind([&] {
    EXPECT_TRUE(arrive(0, 2).ok());
    EXPECT_TRUE(arrive(0, 3).ok());
  });
  EXPECT_TRUE(arrive(1, 3).ok());
  behind.join();
}

}  // namespace
}  // namespace millrace::ps
