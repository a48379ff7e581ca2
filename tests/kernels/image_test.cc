// Properties of the kernels of ops/vision and ops/detection that the reference corpus does not
// cover.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The index computation of Darknet's reorg layer: channels become pixels of a larger image, whose
// memory is then interpreted with the dims of Out.
TEST(SpaceToDepth, ReordersAsTheReorgLayerDoes) {
  RunOp op("space_to_depth");
  std::vector<double> count(16);
  for (size_t i = 0; i < 16; ++i) count[i] = static_cast<double>(i);
  op.in("X", {1, 4, 2, 2}, count).out("Out").attr("blocksize", int64_t{2});
  op.with_grad({"X"}).feed("Out0@GRAD", {1, 16, 1, 1}, count);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15));
  EXPECT_THAT(op.values("X0@GRAD"),
              ElementsAre(0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15));
}

TEST(GridSampler, GradientsAgreeWithFiniteDifferencesInSpace) {
  for (const char* const padding : {"zeros", "border", "reflection"}) {
    RunOp op("grid_sampler");
    op.in("X", {1, 2, 3, 4, 3}, noise(72), DType::kFloat64)
        .in("Grid", {1, 2, 2, 2, 3}, noise(24, 2), DType::kFloat64)
        .out("Output")
        .attr("padding_mode", padding)
        .attr("align_corners", false);
    EXPECT_LT(op.gradient_error({"X", "Grid"}, "Output0"), 1e-5) << padding;
  }
}

TEST(GridSampler, PointsThatAreNoNumbersReadNothing) {
  RunOp op("grid_sampler");
  op.in("X", {1, 1, 2, 2}, {1})
      .in("Grid", {1, 1, 2, 2}, {std::nan(""), 0, 1e30, -1e30})
      .out("Output");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Output0"), ElementsAre(0, 0));
}

// 5 * 0.5 is not an integer: the scale, not the two sizes, determines the positions of Out.
TEST(Interp, AScaleIsTheDistanceOfTheCubicOp) {
  RunOp op("bicubic_interp_v2");
  op.in("X", {1, 1, 5, 1}, {0, 1, 4, 9, 16}, DType::kFloat64).out("Out");
  op.attr("scale", std::vector<float>{0.5F, 1.0F}).attr("align_corners", false);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(DoubleEq(0.21875), DoubleEq(6.125)));
}

TEST(BoxCoder, LodIsThatOfTheRows) {
  const Lod priors({{0, 3, 4}});
  const Lod targets({{0, 1, 3}});
  RunOp encode("box_coder");
  encode.in("PriorBox", {4, 4}, waves(16), DType::kFloat32, priors)
      .in("TargetBox", {3, 4}, waves(12), DType::kFloat32, targets)
      .out("OutputBox");
  ASSERT_EQ(encode.run_text(), "ok");
  EXPECT_EQ(encode.tensor("OutputBox0").lod(), targets);
  RunOp decode("box_coder");
  decode.in("PriorBox", {4, 4}, waves(16), DType::kFloat32, priors)
      .in("TargetBox", {4, 2, 4}, waves(32), DType::kFloat32, Lod({{0, 2, 4}}))
      .out("OutputBox")
      .attr("code_type", "decode_center_size")
      .attr("axis", 1);
  ASSERT_EQ(decode.run_text(), "ok");
  EXPECT_EQ(decode.tensor("OutputBox0").lod(), priors);
}

TEST(RoiPool, RegionsOfMoreImagesThanThereAreAreRefused) {
  RunOp op("roi_pool");
  op.in("X", {1, 1, 4, 4}, {1})
      .in("ROIs", {2, 4}, {0}, DType::kFloat32, Lod({{0, 1, 2}}))
      .out("Out")
      .out("Argmax");
  EXPECT_EQ(op.run_text(), "2 images have 2 regions, expected 1 images and 2 regions");
}

TEST(RoiAlign, CoordinatesBeyondAllImagesAreRefused) {
  RunOp op("roi_align");
  op.in("X", {1, 1, 4, 4}, {1})
      .in("ROIs", {1, 4}, {0, 0, 1e9, 1e9}, DType::kFloat32, Lod({{0, 1}}))
      .out("Out");
  EXPECT_THAT(op.run_text(), HasSubstr("ROIs has coordinate 1000000000"));
}

TEST(RoiAlign, RefusesAScaleThatIsNotAboveZero) {
  RunOp op("roi_align");
  op.in("X", {1, 1, 4, 4}, {1})
      .in("ROIs", {1, 4}, {0, 0, 1, 1}, DType::kFloat32, Lod({{0, 1}}))
      .attr("spatial_scale", -0.25F)
      .out("Out");
  EXPECT_EQ(op.run_text(), "attribute 'spatial_scale' is -0.25, expected a number above 0");
}

TEST(TargetAssign, UnmatchedPredictionsGetTheMismatchValue) {
  RunOp op("target_assign");
  op.in("X", {3, 1, 2}, {1, 2, 3, 4, 5, 6}, DType::kFloat32, Lod({{0, 2, 3}}))
      .in("MatchIndices", {2, 3}, {1, -1, 0, -1, 0, -1}, DType::kInt32)
      .in("NegIndices", {2, 1}, {1, 2}, DType::kInt32, Lod({{0, 1, 2}}))
      .out("Out")
      .out("OutWeight")
      .attr("mismatch_value", 9);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(3, 4, 9, 9, 1, 2, 9, 9, 5, 6, 9, 9));
  EXPECT_THAT(op.values("OutWeight0"), ElementsAre(1, 1, 1, 0, 1, 1));
}

TEST(TargetAssign, ATargetThatTheImageDoesNotHaveIsRefused) {
  RunOp op("target_assign");
  op.in("X", {1, 1, 1}, {1}, DType::kFloat32, Lod({{0, 1}}))
      .in("MatchIndices", {1, 1}, {1}, DType::kInt32)
      .out("Out")
      .out("OutWeight");
  EXPECT_EQ(op.run_text(), "MatchIndices has target 1 of image 0, which has 1 targets");
}

TEST(MineHardExamples, TakesTheLargestLossesByTheNumberOfMatches) {
  RunOp op("mine_hard_examples");
  op.in("ClsLoss", {1, 5}, {0.1, 0.9, 0.5, 0.7, 0.8})
      .in("MatchIndices", {1, 5}, {0, -1, -1, -1, -1}, DType::kInt32)
      .in("MatchDist", {1, 5}, {0.9, 0.1, 0.1, 0.1, 0.6})
      .out("NegIndices")
      .out("UpdatedMatchIndices")
      .attr("neg_pos_ratio", 2.0F);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("NegIndices0"), ElementsAre(1, 3));  // 4 overlaps too much
  EXPECT_EQ(op.tensor("NegIndices0").lod(), Lod({{0, 2}}));
}

TEST(CollectFpnProposals, KeepsTheBestOfAllLevelsByImage) {
  RunOp op("collect_fpn_proposals");
  op.in("MultiLevelRois", {2, 4}, {1, 1, 1, 1, 2, 2, 2, 2}, DType::kFloat32, Lod({{0, 1, 2}}))
      .in("MultiLevelRois", {1, 4}, {3}, DType::kFloat32, Lod({{0, 1, 1}}))
      .in("MultiLevelScores", {2, 1}, {0.2, 0.9}, DType::kFloat32, Lod({{0, 1, 2}}))
      .in("MultiLevelScores", {1, 1}, {0.5}, DType::kFloat32, Lod({{0, 1, 1}}))
      .out("FpnRois")
      .out("RoisNum")
      .attr("post_nms_topN", 2);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("FpnRois0"), ElementsAre(3, 3, 3, 3, 2, 2, 2, 2));
  EXPECT_EQ(op.tensor("FpnRois0").lod(), Lod({{0, 1, 2}}));
  EXPECT_THAT(op.values("RoisNum0"), ElementsAre(1, 1));
}

TEST(YoloLoss, ALabelWithoutClassIsRefused) {
  RunOp op("yolov3_loss");
  op.in("X", {1, 7, 2, 2}, {0})
      .in("GTBox", {1, 1, 4}, {0.5})
      .in("GTLabel", {1, 1}, {2}, DType::kInt32)
      .out("Loss")
      .out("ObjectnessMask")
      .out("GTMatchMask")
      .ints("anchors", {8, 8})
      .ints("anchor_mask", {0})
      .attr("class_num", 2);
  EXPECT_EQ(op.run_text(), "GTLabel has class 2, but there are 2 classes");
}

TEST(YoloLoss, TheGradientAgreesWithFiniteDifferences) {
  RunOp op("yolov3_loss");
  op.in("X", {1, 14, 2, 2}, noise(56), DType::kFloat64)
      .in("GTBox", {1, 2, 4}, {0.3, 0.3, 0.2, 0.3, 0.8, 0.7, 0.4, 0.5}, DType::kFloat64)
      .in("GTLabel", {1, 2}, {1, 0}, DType::kInt32)
      .in("GTScore", {1, 2}, {0.9, 0.6}, DType::kFloat64)
      .out("Loss")
      .out("ObjectnessMask")
      .out("GTMatchMask")
      .ints("anchors", {12, 16, 30, 30})
      .ints("anchor_mask", {0, 1})
      .attr("class_num", 2);
  EXPECT_LT(op.gradient_error({"X"}, "Loss0"), 1e-5);
}

}  // namespace
}  // namespace millrace::kernels
