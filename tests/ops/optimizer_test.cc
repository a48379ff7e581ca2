#include <gtest/gtest.h>

#include "framework/op_attrs.h"
#include "tests/ops/op_fixture.h"

namespace millrace::ops {
namespace {

TEST(Optimizer, OutputsFollowTheirInputs) {
  EXPECT_EQ(infer("sgd", "Param=f32[4,3] Grad=f32[4,3] LearningRate=f32[1]", "ParamOut"),
            "ParamOut=f32[4,3]");
  EXPECT_EQ(infer("adam",
                  "Param=f32[4,3] Grad=rows:f32[] LearningRate=f32[] Moment1=f32[4,3] "
                  "Moment2=f32[4,3] Beta1Pow=f32[1] Beta2Pow=f32[1]",
                  "ParamOut Moment1Out Beta1PowOut"),
            "ParamOut=f32[4,3] Moment1Out=f32[4,3] Beta1PowOut=f32[1]");
  EXPECT_EQ(infer("ftrl",
                  "Param=f32[4] Grad=f32[4] LearningRate=f32[1] SquaredAccumulator=f32[4] "
                  "LinearAccumulator=f32[4]",
                  "ParamOut SquaredAccumOut LinearAccumOut"),
            "ParamOut=f32[4] SquaredAccumOut=f32[4] LinearAccumOut=f32[4]");
  EXPECT_EQ(infer("rmsprop",
                  "Param=f32[4] Grad=f32[4] LearningRate=f32[1] MeanSquare=f32[4] Moment=f32[4]",
                  "ParamOut MeanSquareOut MomentOut"),
            "ParamOut=f32[4] MeanSquareOut=f32[4] MomentOut=f32[4]");
}

TEST(Optimizer, ListsArePaired) {
  EXPECT_EQ(infer("merged_momentum",
                  "Param=f32[4]+f32[2,3] Grad=f32[4]+f32[2,3] Velocity=f32[4]+f32[2,3] "
                  "LearningRate=f32[1]+f32[1]",
                  "ParamOut*2 VelocityOut*2"),
            "ParamOut=f32[4]+f32[2,3] VelocityOut=f32[4]+f32[2,3]");
  EXPECT_EQ(infer("merged_adam",
                  "Param=f32[4]+f32[2,3] Grad=f32[4]+f32[2,3] LearningRate=f32[1] "
                  "Moment1=f32[4]+f32[2,3] Moment2=f32[4]+f32[2,3] Beta1Pow=f32[1]+f32[1] "
                  "Beta2Pow=f32[1]+f32[1]",
                  "ParamOut*2 Moment2Out*2 Beta1PowOut*2"),
            "ParamOut=f32[4]+f32[2,3] Moment2Out=f32[4]+f32[2,3] Beta1PowOut=f32[1]+f32[1]");
  EXPECT_EQ(infer("merged_sgd", "Param=f32[4]+f32[3] Grad=f32[4]+f32[3] LearningRate=f32[1]+f32[1]",
                  "ParamOut*2"),
            "ParamOut=f32[4]+f32[3]");
  EXPECT_EQ(infer("lars_momentum",
                  "Param=f32[4]+f32[2,3] Grad=f32[4]+f32[2,4] Velocity=f32[4]+f32[2,3] "
                  "LearningRate=f32[1]+f32[1]",
                  "ParamOut*2"),
            "Param and Grad must have the same shape, found [2, 3] and [2, 4]");
  EXPECT_EQ(infer("merged_momentum",
                  "Param=f32[4]+f32[2,3] Grad=f32[4] Velocity=f32[4]+f32[2,3] LearningRate=f32[1]",
                  "ParamOut*2"),
            "Grad must have the same number of vars as Param, found 1 and 2");
}

TEST(Optimizer, ImpossibleShapes) {
  EXPECT_EQ(infer("sgd", "Param=f32[4,3] Grad=f32[4,5] LearningRate=f32[1]", "ParamOut"),
            "Param and Grad must have the same shape, found [4, 3] and [4, 5]");
  EXPECT_EQ(
      infer("momentum", "Param=f32[4] Grad=f32[4] Velocity=f32[4] LearningRate=f32[2]", "ParamOut"),
      "LearningRate must have 1 element, found [2]");
  // Pserver programs declare some tensors of a sliced parameter with all of its rows.
  EXPECT_EQ(infer("sgd", "Param=f32[500,8] Grad=f32[1000,8] LearningRate=f32[1]", "ParamOut"),
            "ParamOut=f32[500,8]");
}

// A dispatcher balances servers by these numbers: more optimizer state means more work.
TEST(Optimizer, CostGrowsWithTheParameterAndTheRule) {
  const std::string common = "Param=f32[10,3] Grad=f32[10,3] LearningRate=f32[1]";
  EXPECT_EQ(flops("sgd", common), 60);
  EXPECT_GT(flops("momentum", common + " Velocity=f32[10,3]"), flops("sgd", common));
  EXPECT_GT(flops("adam", common), flops("momentum", common));
  EXPECT_EQ(flops("lars_momentum", "Param=f32[10]+f32[5]"), 150);
}

TEST(LossScaling, PassesGradientsThrough) {
  EXPECT_EQ(
      infer("check_finite_and_unscale", "X=f32[4]+f32[2,3] Scale=f32[1]", "Out*2 FoundInfinite"),
      "Out=f32[4]+f32[2,3] FoundInfinite=bool[1]");
  EXPECT_EQ(infer("update_loss_scaling",
                  "X=f32[4] FoundInfinite=bool[1] PrevLossScaling=f32[1] InGoodSteps=i32[1] "
                  "InBadSteps=i32[1]",
                  "Out LossScaling OutGoodSteps OutBadSteps"),
            "Out=f32[4] LossScaling=f32[1] OutGoodSteps=i32[1] OutBadSteps=i32[1]");
  EXPECT_EQ(infer("check_finite_and_unscale", "X=f32[4] Scale=f32[2]", "Out"),
            "Scale must have 1 element, found [2]");
}

}  // namespace
}  // namespace millrace::ops
