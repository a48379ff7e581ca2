// Random ops: streams depend only on the seed, and their numbers have the right distribution. Also
// properties of the ops that create tensors that the reference corpus does not cover.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Values = std::vector<double>;

RunOp draw(const char* type, int64_t count, int32_t seed, int32_t dtype = 5) {
  RunOp op(type);
  op.attr("shape", std::vector<int64_t>{count}).attr("seed", seed).attr("dtype", dtype).out("Out");
  return op;
}

Values drawn(RunOp op, int threads = 1) {
  EXPECT_EQ(op.run_text(threads), "ok");
  return op.values("Out0");
}

double mean_of(const Values& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}
double deviation_of(const Values& values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(Streams, DependOnTheSeedAndNotOnThreads) {
  for (const char* const type :
       {"uniform_random", "gaussian_random", "truncated_gaussian_random"}) {
    const Values once = drawn(draw(type, 100001, 7));
    EXPECT_EQ(once, drawn(draw(type, 100001, 7), 2)) << type;
    EXPECT_NE(once, drawn(draw(type, 100001, 8))) << type;
    // an odd count has the same numbers as the beginning of a longer tensor
    EXPECT_EQ(drawn(draw(type, 5, 7))[4], once[4]) << type;
  }
}

TEST(Uniform, StaysInTheRangeWithTheRightMoments) {
  for (const int32_t dtype : {5, 6}) {
    const Values values = drawn(draw("uniform_random", 200000, 3, dtype));
    EXPECT_GE(*std::min_element(values.begin(), values.end()), -1.0);
    EXPECT_LT(*std::max_element(values.begin(), values.end()), 1.0);
    EXPECT_NEAR(mean_of(values), 0, 0.01);
    EXPECT_NEAR(deviation_of(values), 1 / std::sqrt(3.0), 0.01);
  }
}

TEST(Uniform, OverwritesADiagonal) {
  RunOp op = draw("uniform_random", 9, 1);
  op.attr("diag_num", 3).attr("diag_step", 3).attr("diag_val", 2.0F);
  const Values values = drawn(std::move(op));
  EXPECT_EQ(values[0], 2);
  EXPECT_EQ(values[4], 2);
  EXPECT_EQ(values[8], 2);
  EXPECT_LT(values[1], 1);
}

TEST(Normal, HasTheRightMomentsAndTails) {
  for (const int32_t dtype : {5, 6}) {
    RunOp op = draw("gaussian_random", 400000, 5, dtype);
    op.attr("mean", 1.0F).attr("std", 2.0F);
    const Values values = drawn(std::move(op));
    EXPECT_NEAR(mean_of(values), 1, 0.02);
    EXPECT_NEAR(deviation_of(values), 2, 0.02);
    const auto share = [&](double bound) {
      return static_cast<double>(
                 std::count_if(values.begin(), values.end(),
                               [&](double v) { return std::abs(v - 1) > 2 * bound; })) /
             static_cast<double>(values.size());
    };
    EXPECT_NEAR(share(1), 0.3173, 0.004);
    EXPECT_NEAR(share(2), 0.0455, 0.002);
    EXPECT_NEAR(share(3), 0.0027, 0.0005);
    // all four quadrants of the pairs are equally frequent
    int quadrants[4] = {};
    for (size_t i = 0; i + 1 < values.size(); i += 2)
      ++quadrants[(values[i] > 1 ? 1 : 0) + (values[i + 1] > 1 ? 2 : 0)];
    for (const int count : quadrants) EXPECT_NEAR(count, 50000, 1000);
  }
}

TEST(Normal, TruncatesAtTwoDeviations) {
  const Values values = drawn(draw("truncated_gaussian_random", 200000, 9));
  EXPECT_LE(*std::max_element(values.begin(), values.end()), 2.0);
  EXPECT_GE(*std::min_element(values.begin(), values.end()), -2.0);
  EXPECT_NEAR(mean_of(values), 0, 0.01);
  EXPECT_NEAR(deviation_of(values), 0.8796, 0.01);
}

// Its rows, also if they form sequences: only fill_constant_batch_size_like counts those.
TEST(Normal, TakesTheBatchSizeFromAnotherTensor) {
  RunOp op("gaussian_random_batch_size_like");
  op.in("Input", {5, 2}, {0}, DType::kFloat32, Lod({{0, 2, 5}})).ints("shape", {-1, 3});
  op.attr("seed", 1).out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.tensor("Out0").dims(), ElementsAre(5, 3));
}

TEST(Integers, CoverTheirRange) {
  RunOp op = draw("randint", 1000, 4, 3);
  op.attr("low", -2).attr("high", 3);
  const Values values = drawn(std::move(op));
  EXPECT_EQ(std::set<double>(values.begin(), values.end()), (std::set<double>{-2, -1, 0, 1, 2}));
  RunOp permutation("randperm");
  permutation.attr("n", 50).attr("seed", 6).attr("dtype", 3).out("Out");
  const Values order = drawn(std::move(permutation));
  EXPECT_EQ(std::set<double>(order.begin(), order.end()).size(), 50U);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
}

TEST(Dropout, KeepsTheShareItSays) {
  RunOp op("dropout");
  op.in("X", {100, 301}, {2}).attr("dropout_prob", 0.3F).attr("fix_seed", true).attr("seed", 3);
  op.attr("dropout_implementation", "upscale_in_train").out("Out").out("Mask");
  op.with_grad({"X"}).feed("Out0@GRAD", {100, 301}, {1});
  ASSERT_EQ(op.run_text(2), "ok");
  const Values mask = op.values("Mask0");
  EXPECT_NEAR(mean_of(mask), 0.7, 0.01);
  const Values out = op.values("Out0");
  const Values grad = op.values("X0@GRAD");
  for (size_t i = 0; i < mask.size(); ++i) {
    ASSERT_NEAR(out[i], mask[i] * 2 / 0.7, 1e-5);
    ASSERT_NEAR(grad[i], mask[i] / 0.7, 1e-5);
  }
}

// The original converts numbers in text through a double; the limits of int64 would not survive
// that.
TEST(Fill, ReadsNumbersInText) {
  for (const auto& [text, value] : {std::pair<const char*, int64_t>{"-12", -12},
                                    {"9007199254740993", 9007199254740992},
                                    {"9223372036854775807", INT64_MAX},
                                    {"-9223372036854775808", INT64_MIN}}) {
    RunOp op("fill_constant");
    op.attr("shape", std::vector<int64_t>{2}).attr("dtype", 3).attr("str_value", text).out("Out");
    ASSERT_EQ(op.run_text(), "ok");
    EXPECT_EQ(op.tensor("Out0").data<int64_t>()[1], value);
  }
  RunOp wrong("fill_constant");
  wrong.attr("shape", std::vector<int64_t>{2}).attr("str_value", "1.5x").out("Out");
  EXPECT_THAT(wrong.run_text(), HasSubstr("'str_value' is '1.5x', expected a number"));
}

TEST(Fill, TakesListedValues) {
  RunOp op("fill");
  op.ints("shape", {2, 2})
      .attr("value", std::vector<float>{1, 0, 2, 3})
      .attr("dtype", 3)
      .out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(1, 0, 2, 3));
}

TEST(Range, RefusesAStepThatLeadsAway) {
  RunOp op("range");
  op.in("Start", {1}, {1}, kI64).in("End", {1}, {5}, kI64).in("Step", {1}, {-1}, kI64).out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("Step -1 leads from Start 1 away from End 5"));
  RunOp line("linspace");
  line.in("Start", {1}, {1}).in("Stop", {1}, {5}).in("Num", {1}, {0}, DType::kInt32).out("Out");
  EXPECT_THAT(line.run_text(), HasSubstr("Num is 0, expected at least 1"));
}

}  // namespace
}  // namespace millrace::kernels
