// Losses, a metric and an optimizer that the reference corpus lacks, with values worked out by
// hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using Values = std::vector<double>;

auto near_loss(const Values& values) {
  return Pointwise(DoubleNear(1e-6), values);
}

TEST(SmoothL1Loss, IsQuadraticNearZero) {
  RunOp op("smooth_l1_loss");
  op.in("X", {2, 2}, {1, 2, 3, 0}, kF64).in("Y", {2, 2}, {0.5, 0, 3, -0.2}, kF64);
  op.out("Diff").out("Out").with_grad({"X", "Y"}).feed("Out0@GRAD", {2, 1}, {1, 2}, kF64);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Diff0"), near_loss({0.5, 2, 0, 0.2}));
  EXPECT_THAT(op.values("Out0"), near_loss({1.625, 0.02}));
  EXPECT_THAT(op.values("X0@GRAD"), near_loss({0.5, 1, 0, 0.4}));
  EXPECT_THAT(op.values("Y0@GRAD"), near_loss({-0.5, -1, 0, -0.4}));
}

TEST(SmoothL1Loss, WeighsInsideAndOutside) {
  RunOp op("smooth_l1_loss");
  op.in("X", {1, 2}, {0.1, 1}, kF64).in("Y", {1, 2}, {0}, kF64);
  op.in("InsideWeight", {1, 2}, {2}, kF64).in("OutsideWeight", {1, 2}, {0.5, 3}, kF64);
  op.attr("sigma", 2.0F).out("Diff").out("Out");
  op.with_grad({"X"}).feed("Out0@GRAD", {1, 1}, {1}, kF64);
  ASSERT_EQ(op.run_text(), "ok");
  // 0.5 * 4 * 0.2^2 * 0.5, and (2 - 0.5 / 4) * 3
  EXPECT_THAT(op.values("Out0"), near_loss({0.04 + 5.625}));
  EXPECT_THAT(op.values("X0@GRAD"), near_loss({0.8, 6}));
}

TEST(MarginRankLoss, CountsWhatIsInsideTheMargin) {
  RunOp op("margin_rank_loss");
  op.in("Label", {3, 1}, {1, -1, 1}, kF64).in("X1", {3, 1}, {0.5, 0.5, 2}, kF64);
  op.in("X2", {3, 1}, {1, 1, 0}, kF64).attr("margin", 0.125F).out("Activated").out("Out");
  op.with_grad({"X1", "X2"}).feed("Out0@GRAD", {3, 1}, {2, 3, 4}, kF64);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), near_loss({0.625, 0, 0}));
  EXPECT_THAT(op.values("Activated0"), ElementsAre(1, 0, 0));
  EXPECT_THAT(op.values("X10@GRAD"), near_loss({-2, 0, 0}));
  EXPECT_THAT(op.values("X20@GRAD"), near_loss({2, 0, 0}));
}

TEST(SquaredL2Distance, TakesOneRowForAll) {
  RunOp op("squared_l2_distance");
  op.in("X", {2, 2}, {1, 2, 3, 4}, kF64).in("Y", {1, 2}, {1}, kF64);
  op.out("sub_result").out("Out");
  op.with_grad({"X", "Y"}).feed("Out0@GRAD", {2, 1}, {1, 2}, kF64);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("sub_result0"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(op.values("Out0"), ElementsAre(1, 13));
  EXPECT_THAT(op.values("X0@GRAD"), ElementsAre(0, 2, 8, 12));
  EXPECT_THAT(op.values("Y0@GRAD"), ElementsAre(-8, -14));
}

RunOp center_loss(Values labels) {
  RunOp op("center_loss");
  op.in("X", {3, 2}, {1, 2, 3, 4, 5, 5}, kF64).in("Label", {3, 1}, std::move(labels), kI64);
  op.in("Centers", {2, 2}, {0, 0, 1, 1}, kF64).in("CenterUpdateRate", {1}, {0.5}, kF64);
  op.attr("need_update", true).attr("cluster_num", 2).out("SampleCenterDiff").out("Loss");
  return op;
}

TEST(CenterLoss, MovesTheCenters) {
  RunOp op = center_loss({0, 0, 1});
  op.out_in_place("CentersOut", "Centers");
  op.with_grad({"X"}).feed("Loss0@GRAD", {3, 1}, {1, 2, 0.5}, kF64);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Loss0"), ElementsAre(2.5, 12.5, 16));
  // 0.5 * (4, 6) / 3, and 1 + 0.5 * (4, 4) / 2
  EXPECT_THAT(op.values("Centers0"), near_loss({2.0 / 3, 1, 2, 2}));
  EXPECT_THAT(op.values("X0@GRAD"), ElementsAre(1, 2, 6, 8, 2, 2));
}

TEST(CenterLoss, ChecksLabels) {
  RunOp op = center_loss({0, 2, 1});
  op.out_in_place("CentersOut", "Centers");
  EXPECT_THAT(op.run_text(), HasSubstr("label 1 is 2, expected a class in [0, 2)"));
}

TEST(MeanIou, LeavesOutClassesThatDoNotOccur) {
  RunOp op("mean_iou");
  op.in("Predictions", {4}, {0, 1, 1, 2}, DType::kInt32);
  op.in("Labels", {4}, {0, 1, 2, 2}, DType::kInt32);
  op.attr("num_classes", 4).out("OutMeanIou").out("OutWrong").out("OutCorrect");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("OutWrong0"), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(op.values("OutCorrect0"), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(op.values("OutMeanIou0"), near_loss({2.0 / 3}));
}

TEST(ProximalAdagrad, ShrinksTowardsZero) {
  for (const float l1 : {0.0F, 0.5F, -0.5F}) {  // below 0 it has no effect
    RunOp op("proximal_adagrad");
    op.in("Param", {2}, {1, -0.01}, kF64).in("Moment", {2}, {0, 3}, kF64);
    op.in("Grad", {2}, {2, 1}, kF64).in("LearningRate", {1}, {0.25}, kF64);
    op.attr("l1", l1).attr("l2", 1.0F);
    op.out_in_place("ParamOut", "Param").out_in_place("MomentOut", "Moment");
    ASSERT_EQ(op.run_text(), "ok");
    EXPECT_THAT(op.values("Moment0"), ElementsAre(4, 4));
    // 1 - 0.25 * 2 / 2 and -0.01 - 0.25 / 2, less 0.25 * l1, over 1.25
    if (l1 <= 0) {
      EXPECT_THAT(op.values("Param0"), near_loss({0.6, -0.108}));
    } else {
      EXPECT_THAT(op.values("Param0"), near_loss({0.5, -0.008}));
    }
  }
}

TEST(Ftrl, TakesTheSignOfL1) {
  RunOp op("ftrl");
  op.in("Param", {2}, {1, 1}, kF64).in("Grad", {2}, {0, 0}, kF64).attr("l1", -0.5F);
  op.in("SquaredAccumulator", {2}, {1, 1}, kF64).in("LinearAccumulator", {2}, {1, -1}, kF64);
  op.in("LearningRate", {1}, {1}, kF64).out_in_place("ParamOut", "Param");
  op.out_in_place("SquaredAccumOut", "SquaredAccumulator");
  op.out_in_place("LinearAccumOut", "LinearAccumulator");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Param0"), near_loss({-1.5, 1.5}));
}

// Its formula divides by the rate; a schedule may bring it to 0.
TEST(Ftrl, RefusesARateOfZero) {
  RunOp op("ftrl");
  op.in("Param", {1}, {1}).in("Grad", {1}, {1}).in("LearningRate", {1}, {0});
  op.in("SquaredAccumulator", {1}, {1}).in("LinearAccumulator", {1}, {1});
  op.out_in_place("ParamOut", "Param").out_in_place("SquaredAccumOut", "SquaredAccumulator");
  op.out_in_place("LinearAccumOut", "LinearAccumulator");
  EXPECT_THAT(op.run_text(), HasSubstr("LearningRate is 0, by which ftrl divides"));
}

TEST(BceLoss, RefusesWhatIsNoProbability) {
  for (const double wrong : {1.25, -0.25}) {
    RunOp op("bce_loss");
    op.in("X", {2, 1}, {0.5, wrong}).in("Label", {2, 1}, {1, 0}).out("Out");
    EXPECT_THAT(op.run_text(), HasSubstr("at 1, expected a probability from 0 to 1"));
  }
}

}  // namespace
}  // namespace millrace::kernels
