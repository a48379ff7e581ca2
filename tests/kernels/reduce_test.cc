#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr double kReduceInf = std::numeric_limits<double>::infinity();

using Axes = std::vector<int32_t>;
// Axes of a [2, 3, 4]: last, first, middle, first and last, all.
const Axes kAxes[] = {{2}, {0}, {1}, {0, 2}, {0, 1}, {1, 2}, {0, 1, 2}, {-1}};

TEST(Reduce, GradientsAreDerivativesOverAllAxes) {
  for (const char* const type :
       {"reduce_sum", "reduce_mean", "reduce_prod", "reduce_max", "reduce_min", "frobenius_norm"}) {
    for (const Axes& axes : kAxes) {
      SCOPED_TRACE(type + ::testing::PrintToString(axes));
      RunOp op(type);
      op.in("X", tensor_value({2, 3, 4}, waves(24), kF64)).attr("dim", axes).out("Out");
      EXPECT_LT(op.gradient_error({"X"}, "Out0"), 1e-5);
    }
  }
}

TEST(Reduce, TakesAxesFromTensors) {
  RunOp op("reduce_sum");
  op.in("X", tensor_value({2, 3}, {1, 2, 3, 4, 5, 6}))
      .in("AxisTensor", tensor_value({1}, {1}, DType::kInt32))
      .out("Out");
  ASSERT_TRUE(op.run().ok());
  EXPECT_THAT(dims(op.value("Out0")), ElementsAre(2));
  EXPECT_THAT(numbers(op.value("Out0")), ElementsAre(6, 15));
  RunOp wrong("reduce_sum");
  wrong.in("X", tensor_value({2, 3}, waves(6)))
      .in("AxisTensor", tensor_value({1}, {2}, DType::kInt64))
      .out("Out");
  EXPECT_THAT(wrong.run_text(), HasSubstr("axis 2 is outside of [-2, 2)"));
}

TEST(Reduce, SumsOverManyThreadsAreThoseOfOne) {
  const int64_t count = 300007;
  const auto run = [&](int threads) {
    RunOp op("reduce_sum");
    op.in("X", tensor_value({count}, waves(count))).out("Out");
    EXPECT_TRUE(op.run(threads).ok());
    return numbers(op.value("Out0"));
  };
  EXPECT_EQ(run(1), run(3));
  double exact = 0;
  for (const double v : waves(count)) exact += v;
  EXPECT_THAT(run(1), ElementsAre(DoubleNear(exact, 1e-2)));
}

TEST(Reduce, OverNothing) {
  RunOp sum("reduce_sum");
  sum.in("X", tensor_value({0, 3}, {})).attr("dim", std::vector<int32_t>{0}).out("Out");
  ASSERT_TRUE(sum.run().ok());
  EXPECT_THAT(numbers(sum.value("Out0")), ElementsAre(0, 0, 0));
  RunOp mean("reduce_mean");
  mean.in("X", tensor_value({0, 2}, {}, DType::kInt64))
      .attr("dim", std::vector<int32_t>{0})
      .out("Out");
  ASSERT_TRUE(mean.run().ok());
  EXPECT_THAT(numbers(mean.value("Out0")), ElementsAre(0, 0));
}

// Axes of size 1 leave nothing to combine, so the result may share the memory of X.
TEST(Reduce, MayWriteOverXWhereDimsStay) {
  RunOp op("reduce_sum");
  op.in("X", tensor_value({3, 1}, {1, 2, 3}))
      .attr("dim", std::vector<int32_t>{1})
      .attr("keep_dim", true)
      .out_in_place("Out", "X");
  ASSERT_TRUE(op.run().ok());
  EXPECT_THAT(numbers(op.value("X0")), ElementsAre(1, 2, 3));
}

TEST(LogSumExp, TakesLargeAndInfiniteInputs) {
  RunOp op("logsumexp");
  op.in("X", tensor_value({3, 2}, {1000, 1000, -kReduceInf, -kReduceInf, 0, kReduceInf}))
      .attr("axis", std::vector<int32_t>{1})
      .out("Out");
  ASSERT_TRUE(op.run().ok());
  EXPECT_THAT(numbers(op.value("Out0")),
              ElementsAre(DoubleNear(1000 + std::log(2), 1e-3), -kReduceInf, kReduceInf));
}

TEST(LogSumExp, GradientsAreDerivativesOverAllAxes) {
  for (const Axes& axes : kAxes) {
    RunOp op("logsumexp");
    op.in("X", tensor_value({2, 3, 4}, waves(24), kF64)).attr("axis", axes).out("Out");
    EXPECT_LT(op.gradient_error({"X"}, "Out0"), 1e-6);
  }
}

TEST(Norms, GradientsAreDerivatives) {
  for (const float p : {1.0F, 2.0F, 3.0F, 1.5F}) {
    RunOp op("p_norm");
    op.in("X", tensor_value({2, 3, 2}, waves(12), kF64))
        .attr("porder", p)
        .attr("axis", 1)
        .out("Out");
    EXPECT_LT(op.gradient_error({"X"}, "Out0"), 1e-5);
  }
  RunOp norm("norm");
  norm.in("X", tensor_value({2, 3, 2}, waves(12), kF64)).attr("axis", 1).out("Out").out("Norm");
  EXPECT_LT(norm.gradient_error({"X"}, "Out0"), 1e-6);
  for (const char* const type : {"l1_norm", "squared_l2_norm", "mean"}) {
    RunOp total(type);
    total.in("X", tensor_value({5}, waves(5), kF64)).out("Out");
    EXPECT_LT(total.gradient_error({"X"}, "Out0"), 1e-6);
  }
}

TEST(ClipByNorm, AddsUpRowsBeforeItTakesTheirNorm) {
  RunOp op("clip_by_norm");
  op.in("X", rows_value({1, 1, 0}, 3, {3, 1}, {1, 2, 4}))
      .attr("max_norm", 2.5F)
      .out_kind("Out", VarKind::kSelectedRows);
  ASSERT_TRUE(op.run().ok());
  EXPECT_THAT(op.value("Out0").get_if<SelectedRows>()->rows, ElementsAre(1, 0));
  EXPECT_THAT(numbers(op.value("Out0")), Pointwise(DoubleNear(1e-6), {1.5, 2.0}));
}

TEST(Scans, GradientsAreDerivatives) {
  for (const bool exclusive : {false, true}) {
    for (const bool reverse : {false, true}) {
      RunOp op("cumsum");
      op.in("X", tensor_value({2, 3, 2}, waves(12), kF64))
          .attr("axis", 1)
          .attr("exclusive", exclusive)
          .attr("reverse", reverse)
          .out("Out");
      EXPECT_LT(op.gradient_error({"X"}, "Out0"), 1e-6);
    }
  }
}

// With no zero, with one at each end, and with two.
TEST(Scans, GradientOfAProductTakesZeros) {
  for (const std::vector<double>& x : {std::vector<double>{1, 2, 3, 0.5},
                                       {0, 2, 3, 0.5},
                                       {1, 2, 3, 0},
                                       {2, 0, 3, 0.5},
                                       {2, 0, 3, 0}}) {
    RunOp op("cumprod");
    op.in("X", tensor_value({4}, x, kF64)).attr("dim", 0).out("Out");
    EXPECT_LT(op.gradient_error({"X"}, "Out0"), 1e-6);
  }
}

TEST(Totals, SayWhetherAnyElementIsNotFinite) {
  const auto run = [](const char* type, std::vector<double> x) {
    RunOp op(type);
    op.in("X", tensor_value({2}, x)).out("Out");
    EXPECT_TRUE(op.run().ok());
    return numbers(op.value("Out0")).front() != 0;
  };
  EXPECT_TRUE(run("isfinite", {1, 2}));
  EXPECT_FALSE(run("isfinite", {1, kReduceInf}));
  EXPECT_FALSE(run("isfinite", {1, std::nan("")}));
  EXPECT_TRUE(run("isinf", {-kReduceInf, 2}));
  EXPECT_FALSE(run("isinf", {1, std::nan("")}));
  EXPECT_TRUE(run("isnan", {1, std::nan("")}));
}

}  // namespace
}  // namespace millrace::kernels
