#include "ps/table/dense_table.h"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/table/barrier_table.h"
#include "ps/table/rate_table.h"
#include "ps/table/tensor_table.h"
#include "tests/ps/fake_sender.h"
#include "tests/support/program_builder.h"

// Dense, barrier and tensor tables.

namespace millrace::ps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Rule = DenseTableOptions::Rule;
using Floats = std::vector<float>;

std::unique_ptr<DenseTable> make_dense_table(DenseTableOptions options) {
  auto table = DenseTable::create(std::move(options));
  EXPECT_TRUE(table.ok()) << table.status().to_string();
  return std::move(*table);
}

Floats pull_dense_table(const DenseTable& table) {
  Floats out(static_cast<size_t>(table.size()));
  EXPECT_TRUE(table.pull(std::span<float>(out)).ok());
  return out;
}

TEST(DenseTableTest, RulesFollowTheirFormulas) {
  constexpr size_t kCount = 40'000;  // several blocks
  for (const Rule rule : {Rule::kSgd, Rule::kAdam, Rule::kAdamD2Sum, Rule::kSum, Rule::kSummary}) {
    DenseTableOptions options;
    options.elements = kCount;
    options.rule = rule;
    options.learning_rate = 0.1F;
    options.beta1 = 0.8F;
    options.initializer = *parse_initializer("fill_constant&1");
    auto table = make_dense_table(options);
    double p = 1, a = 0, b = 0, c = 0, b1p = 1, b2p = 1;
    for (int step = 1; step <= 5; ++step) {
      const Floats grads(kCount, 0.5F * static_cast<float>(step));
      ASSERT_TRUE(table->push(grads).ok());
      const double g = 0.5 * step, b1 = options.beta1, b2 = options.beta2, eps = options.epsilon;
      switch (rule) {
        case Rule::kSgd:
          p -= 0.1 * g;
          break;
        case Rule::kSum:
          p += g;
          break;
        case Rule::kSummary:
          p = 0.999999 * p + g;
          break;
        case Rule::kAdam:
          b1p *= b1;
          b2p *= b2;
          a = b1 * a + (1 - b1) * g;
          b = b2 * b + (1 - b2) * g * g;
          p -= 0.1 * std::sqrt(1 - b2p) / (1 - b1p) * a / (std::sqrt(b) + eps * std::sqrt(1 - b2p));
          break;
        case Rule::kAdamD2Sum:
          c = c * options.decay + 1;
          b = b * options.decay + g * g;
          a = (a + g) * options.momentum - g;
          p += 0.1 * a * std::sqrt((c + c * eps) / (b + c * eps));
          break;
      }
    }
    const Floats after = pull_dense_table(*table);
    for (const float value : after)
      ASSERT_NEAR(value, p, 1e-5 * std::max(1.0, std::abs(p))) << static_cast<int>(rule);
  }
}

TEST(DenseTableTest, SyncAppliesTheMeanWhenPoured) {
  DenseTableOptions options;
  options.elements = 2;
  options.learning_rate = 1;
  options.sync = true;
  auto table = make_dense_table(options);
  ASSERT_TRUE(table->push(Floats{1, 2}).ok());
  ASSERT_TRUE(table->push(Floats{3, 6}).ok());
  EXPECT_THAT(pull_dense_table(*table), ElementsAre(0, 0));
  ASSERT_TRUE(table->apply_pending().ok());
  EXPECT_THAT(pull_dense_table(*table), ElementsAre(-2, -4));
  ASSERT_TRUE(table->apply_pending().ok());
  EXPECT_THAT(pull_dense_table(*table), ElementsAre(-2, -4)) << "nothing was pushed since";
}

TEST(DenseTableTest, SyncAddsUpInOrderOfTrainersAndNotOfArrival) {
  DenseTableOptions options;
  options.elements = 1;
  options.learning_rate = 1;
  options.sync = true;
  auto table = make_dense_table(options);
  // (1 + 1e8) - 1e8 is 0 in floats, and 1 in another order of arrival
  ASSERT_TRUE(table->push(Floats{-1e8F}, 2).ok());
  ASSERT_TRUE(table->push(Floats{1e8F}, 1).ok());
  ASSERT_TRUE(table->push(Floats{1}, 0).ok());
  ASSERT_TRUE(table->apply_pending().ok());
  EXPECT_THAT(pull_dense_table(*table), ElementsAre(0));
}

TEST(DenseTableTest, ThreadsDoNotLosePushes) {
  DenseTableOptions options;
  options.elements = 50'000;
  options.rule = Rule::kSum;
  auto table = make_dense_table(options);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const Floats ones(50'000, 1);
      for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(table->push(ones).ok());
        pull_dense_table(*table);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(pull_dense_table(*table), Each(80));
}

TEST(DenseTableTest, RefusesOtherRulesAndSizes) {
  EXPECT_THAT(parse_dense_rule("momentum").status().message(),
              HasSubstr("do not support optimizer 'momentum'"));
  DenseTableOptions options;
  options.elements = 3;
  options.table_id = 4;
  auto table = make_dense_table(options);
  EXPECT_EQ(table->push(Floats{1}).message(), "table 4 has 3 elements, found 1");
  EXPECT_EQ(table->set(Floats{1}).code(), StatusCode::kInvalidArgument);
  options.elements = -1;
  EXPECT_FALSE(DenseTable::create(options).ok());
  options.elements = 0;  // the last of several servers may hold nothing
  EXPECT_TRUE(make_dense_table(options)->push(Floats{}).ok());
}

std::shared_ptr<const UpdateOp> update_op(const char* type, const char* attrs, Floats initial) {
  auto op = UpdateOp::create({type, attrs, std::move(initial)});
  EXPECT_TRUE(op.ok()) << op.status().to_string();
  return *op;
}

// Two ranges in several blocks; the powers of the second move once in each push.
TEST(DenseTableTest, OpsUpdateRanges) {
  constexpr int64_t kFirst = 20'000;
  constexpr int64_t kSecond = 30'000;
  DenseTableOptions options;
  options.elements = kFirst + kSecond;
  options.learning_rate = 0.5F;
  options.updates = {{kFirst, update_op("momentum", "mu&0.5", {0}), 2},
                     {kSecond, update_op("adamax", "beta1&0.5#beta2&0.5#epsilon&0", {0, 0, 0.5F})}};
  auto table = make_dense_table(options);
  const Floats ones(kFirst + kSecond, 1);
  ASSERT_TRUE(table->push(ones).ok());
  ASSERT_TRUE(table->push(ones).ok());
  const Floats params = pull_dense_table(*table);
  // velocities 1 and 1.5, rate 0.5 * 2; a step of adamax is 0.5 * (m / (1 - beta1^t)) / 1
  EXPECT_THAT(std::span(params).first(kFirst), Each(-2.5F));
  EXPECT_THAT(std::span(params).last(kSecond), Each(-1.0F));
  std::vector<std::string> names;
  ASSERT_TRUE(table
                  ->with_columns([&](std::span<const DenseTable::Column> columns) {
                    for (const auto& column : columns) names.emplace_back(column.name);
                    EXPECT_EQ(columns[1].values[kFirst - 1], 1.5F);
                    EXPECT_EQ(columns[1].values[kFirst], 0);
                    EXPECT_THAT(columns[4].values, ElementsAre(0, 0.125F));
                    return Ok();
                  })
                  .ok());
  EXPECT_THAT(names, ElementsAre("Param", "Velocity", "Moment", "InfNorm", "Beta1Pow"));
}

// Updates of many weights that begin at the same time, so that they overlap.
TEST(DenseTableTest, ThreadsShareAnOp) {
  const auto op = update_op("momentum", "mu&0.5", {0});
  constexpr size_t kCount = 1'000'000;
  constexpr int kSteps = 12;
  std::barrier begin(2);
  const Floats ones(kCount, 1);
  const auto train = [&] {
    Floats weights(kCount);
    Floats velocities(kCount);
    float* const states[] = {velocities.data()};
    for (int step = 0; step < kSteps; ++step) {
      begin.arrive_and_wait();
      EXPECT_TRUE(op->update(kCount, weights.data(), states, ones.data(), 0.5F).ok());
    }
    // step k moves by 0.5 * 2 (1 - 2^-k)
    const float expected = -kSteps + 1 - std::ldexp(1.0F, -kSteps);
    EXPECT_EQ(std::ranges::count(weights, expected), static_cast<ptrdiff_t>(kCount));
  };
  std::thread other(train);
  train();
  other.join();
}

TEST(DenseTableTest, UpdatesThatDoNotFitAreRefused) {
  DenseTableOptions options;
  options.elements = 3;
  options.updates = {{2, update_op("momentum", "mu&0.5", {0})}};
  EXPECT_EQ(DenseTable::create(options).status().message(),
            "table 0 has 3 elements, but updates of 2");
  const auto refused = [](UpdateOpOptions made) {
    return UpdateOp::create(std::move(made)).status().message();
  };
  EXPECT_EQ(refused({"dpsgd", "", {}}), "tables do not support the update op 'dpsgd'");
  EXPECT_EQ(refused({"sgd", "", {0}}), "the op sgd has 0 states, found 1 initial values");
  EXPECT_EQ(refused({"momentum", "mu&x", {0}}),
            "tables: 'mu&x' is not an attribute of the op momentum");
  EXPECT_FALSE(UpdateOp::create({"momentum", "mu&0.5", {}}).ok());
  EXPECT_FALSE(UpdateOp::create({"momentum", "", {0}}).ok());
}

// Such a table can be made, as its rate comes later; the error has no place in a program.
TEST(DenseTableTest, FtrlNeedsARate) {
  const auto ftrl = update_op("ftrl", "l1&0.1#l2&0.1#lr_power&-0.5", {0.1F, 0});
  float weight = 1;
  float square = 0.1F;
  float linear = 0;
  const float grad = 1;
  const std::vector<float*> states{&square, &linear};
  EXPECT_EQ(ftrl->update(1, &weight, states, &grad, 0).to_string(),
            "error: ftrl: LearningRate is 0, by which ftrl divides");
  EXPECT_EQ(weight, 1);
  EXPECT_TRUE(ftrl->update(1, &weight, states, &grad, 0.5F).ok());
  EXPECT_NE(weight, 1);
}

TEST(DenseTableTest, ShowsItsColumns) {
  DenseTableOptions options;
  options.elements = 2;
  options.rule = Rule::kAdam;
  auto table = make_dense_table(options);
  ASSERT_TRUE(table->push(Floats{1, 1}).ok());
  std::vector<std::string> names;
  ASSERT_TRUE(table
                  ->with_columns([&](std::span<const DenseTable::Column> columns) {
                    for (const auto& column : columns) names.emplace_back(column.name);
                    EXPECT_THAT(columns[3].values, ElementsAre(0.9F));
                    EXPECT_THAT(columns[4].values, ElementsAre(0.999F));
                    return Ok();
                  })
                  .ok());
  EXPECT_THAT(names, ElementsAre("Param", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow"));
}

Deadline in_ms(int ms) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
}

TEST(BarrierTableTest, NobodyPassesBeforeAllAreThere) {
  std::atomic<int> poured = 0;
  BarrierTable table(4, [&](CommBarrier kind, const std::set<int>& arrived) {
    EXPECT_EQ(arrived.size(), 4U);
    if (kind == CommBarrier::kSend) ++poured;
    return Ok();
  });
  std::atomic<int> arrived = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int phase = 1; phase <= 50; ++phase) {
        ++arrived;
        ASSERT_TRUE(table.arrive(CommBarrier::kSend, t, phase, in_ms(20'000)).ok());
        EXPECT_GE(arrived, 4 * phase);
        EXPECT_GE(poured, phase);
        ASSERT_TRUE(table.arrive(CommBarrier::kReceive, t, phase, in_ms(20'000)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(poured, 50);
}

TEST(BarrierTableTest, NamesWhoIsMissing) {
  BarrierTable table(3, {});
  const Status status = table.arrive(CommBarrier::kSend, 1, 1, in_ms(30));
  EXPECT_EQ(status.code(), StatusCode::kDistributed);
  EXPECT_EQ(status.message(), "barrier 'send', phase 1: no arrival of trainer 0, 2");
}

TEST(BarrierTableTest, ARepeatIsOneArrivalAndAFinishedPhaseIsOpen) {
  BarrierTable table(2, {});
  EXPECT_FALSE(table.arrive(CommBarrier::kSend, 0, 1, in_ms(5)).ok());
  EXPECT_FALSE(table.arrive(CommBarrier::kSend, 0, 1, in_ms(5)).ok()) << "the same trainer again";
  EXPECT_TRUE(table.arrive(CommBarrier::kSend, 1, 1, in_ms(1000)).ok());
  EXPECT_TRUE(table.arrive(CommBarrier::kSend, 0, 1, in_ms(5)).ok()) << "a repeat after the end";
  EXPECT_FALSE(table.arrive(CommBarrier::kSend, 1, 2, in_ms(5)).ok())
      << "that was no arrival at the next phase";
  EXPECT_EQ(table.arrive(CommBarrier::kSend, 0, 3, in_ms(5)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(table.arrive(CommBarrier::kSend, 7, 2, in_ms(5)).code(), StatusCode::kInvalidArgument);
}

TEST(BarrierTableTest, LeavingFreesThoseWhoWait) {
  BarrierTable table(3, {});
  std::vector<std::thread> threads;
  for (const int t : {0, 1})
    threads.emplace_back(
        [&, t] { EXPECT_TRUE(table.arrive(CommBarrier::kSend, t, 1, in_ms(20'000)).ok()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_TRUE(table.leave(2).ok());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(table.live(), 2);
}

TEST(BarrierTableTest, AFailureOfTheLastIsEverybodys) {
  BarrierTable table(
      2, [](CommBarrier, const std::set<int>&) { return Status(StatusCode::kResource, "full"); });
  std::thread other(
      [&] { EXPECT_EQ(table.arrive(CommBarrier::kSend, 0, 1, in_ms(20'000)).message(), "full"); });
  EXPECT_EQ(table.arrive(CommBarrier::kSend, 1, 1, in_ms(20'000)).message(), "full");
  other.join();
}

TEST(BarrierTableTest, AnEndIsToldToThoseWhoWaitAndThoseWhoCome) {
  BarrierTable table(2, {});
  std::thread waiting(
      [&] { EXPECT_EQ(table.arrive(CommBarrier::kSend, 0, 1, in_ms(20'000)).message(), "gone"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  table.end({StatusCode::kDistributed, "gone"});
  waiting.join();
  EXPECT_EQ(table.arrive(CommBarrier::kSend, 1, 1, in_ms(20'000)).message(), "gone");
}

TEST(TensorTableTest, StepsOfAllTrainersMakeTheRateOfOtherTables) {
  // rate = 0.5 * step + 1, by a program
  millrace::testing::ProgramBuilder builder;
  builder.var("step", {1}, DType::kInt64).var("f", {1}).var("rate", {1});
  builder.op("cast", {{"X", {"step"}}}, {{"Out", {"f"}}})
      .set_int("in_dtype", static_cast<int>(DType::kInt64))
      .set_int("out_dtype", static_cast<int>(DType::kFloat32));
  builder.op("scale", {{"X", {"f"}}}, {{"Out", {"rate"}}})
      .set_float("scale", 0.5F)
      .set_float("bias", 1);
  auto rate_of = program_rate(builder.program(), "step", "rate");
  ASSERT_TRUE(rate_of.ok()) << rate_of.status().to_string();
  TensorTable steps(2, *rate_of);
  DenseTableOptions options;
  options.elements = 1;
  options.learning_rate = 1;
  auto table = make_dense_table(options);
  table->share_rate(steps.rate());
  ASSERT_TRUE(table->push(Floats{1}).ok());
  EXPECT_THAT(pull_dense_table(*table), ElementsAre(-1));
  const Status counted = steps.count(0, 2);
  ASSERT_TRUE(counted.ok()) << counted.to_string();
  ASSERT_TRUE(steps.count(1, 3).ok());
  EXPECT_EQ(steps.steps(), 5);
  ASSERT_TRUE(table->push(Floats{1}).ok());  // step 4: rate 3
  EXPECT_THAT(pull_dense_table(*table), ElementsAre(-4));
  EXPECT_EQ(steps.count(2, 1).code(), StatusCode::kInvalidArgument);
  const Value one = testing::ids({1});
  const Value* const arg = &one;
  ASSERT_TRUE(steps.push(PushKind::kUpdate, TableCall{1, 0, {&arg, 1}}).ok());
  Value reply;
  ASSERT_TRUE(steps.pull(PullKind::kPlain, TableCall{0, 0, {}}, reply).ok());
  EXPECT_EQ(*reply.get_if<Tensor>()->data<int64_t>(), 6);
}

TEST(RateTableTest, TablesFollowTheRateThatWasSetLast) {
  RateTable rate(0.5F);
  DenseTableOptions options;
  options.elements = 1;
  options.learning_rate = 1;
  auto table = make_dense_table(options);
  table->share_rate(rate.rate());
  ASSERT_TRUE(table->push(Floats{1}).ok());
  EXPECT_THAT(pull_dense_table(*table), ElementsAre(-0.5F));
  const auto set = [&](float value) {
    Value given;
    auto& tensor = given.as<Tensor>();
    EXPECT_TRUE(tensor.resize(DType::kFloat32, {1}).ok());
    *tensor.data<float>() = value;
    const Value* const arg = &given;
    return rate.push(PushKind::kUpdate, TableCall{1, 0, {&arg, 1}});
  };
  ASSERT_TRUE(set(0).ok());  // a schedule may start with 0
  ASSERT_TRUE(table->push(Floats{1}).ok());
  EXPECT_THAT(pull_dense_table(*table), ElementsAre(-0.5F));
  ASSERT_TRUE(set(2).ok());
  ASSERT_TRUE(table->push(Floats{1}).ok());
  EXPECT_THAT(pull_dense_table(*table), ElementsAre(-2.5F));
  EXPECT_THAT(set(NAN).message(), HasSubstr("trainer 1 set the learning rate to nan"));
  EXPECT_THAT(rate.push(PushKind::kUpdate, TableCall{1, 0, {}}).message(),
              HasSubstr("argument 0 is missing"));
  Value reply;
  ASSERT_TRUE(rate.pull(PullKind::kPlain, TableCall{0, 0, {}}, reply).ok());
  EXPECT_EQ(*reply.get_if<Tensor>()->data<float>(), 2.0F);
}

}  // namespace
}  // namespace millrace::ps
