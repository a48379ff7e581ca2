// Regions with shifted cells or that are not boxes, and other image ops of detectors.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using Values = std::vector<double>;

RunOp moved_pool(bool still) {
  RunOp op("deformable_psroi_pooling");
  op.in("Input", {2, 8, 6, 7}, noise(672), kF64)
      .in("ROIs", {3, 4}, {2, 2, 13, 9, 4, 0, 9, 7, 0, 4, 7, 12}, kF64, Lod({{0, 1, 3}}))
      .in("Trans", {3, 4, 2, 2}, noise(48, 3), kF64)
      .out("TopCount")
      .out("Output")
      .attr("no_trans", still)
      .attr("spatial_scale", 0.5F)
      .attr("output_dim", 2)
      .ints("group_size", {2, 2})
      .attr("pooled_height", 2)
      .attr("pooled_width", 2)
      .ints("part_size", {2, 2})
      .attr("sample_per_part", 3)
      .attr("trans_std", 0.3F);
  return op;
}

TEST(DeformablePsroiPooling, GradientsAgreeWithFiniteDifferences) {
  EXPECT_LT(moved_pool(false).gradient_error({"Input", "Trans"}, "Output0"), 1e-5);
  EXPECT_LT(moved_pool(true).gradient_error({"Input"}, "Output0"), 1e-6);
}

// The original's backward pass uses the height of Trans as its width.
TEST(DeformablePsroiPooling, PartsNeedNotBeAsHighAsWide) {
  RunOp op("deformable_psroi_pooling");
  op.in("Input", {1, 1, 6, 7}, noise(42), kF64)
      .in("ROIs", {1, 4}, {1, 1, 4, 3}, kF64, Lod({{0, 1}}))
      .in("Trans", {1, 2, 3, 1}, noise(6, 3), kF64)
      .out("TopCount")
      .out("Output");
  op.attr("no_trans", false).attr("spatial_scale", 1.0F).attr("output_dim", 1);
  op.attr("pooled_height", 3).attr("pooled_width", 2).ints("part_size", {3, 1});
  op.attr("sample_per_part", 2).attr("trans_std", 0.2F).ints("group_size", {1, 1});
  EXPECT_LT(op.gradient_error({"Input", "Trans"}, "Output0"), 1e-5);
}

// Pixels 1 to 4 of a line, in two cells of two by two points each.
TEST(DeformablePsroiPooling, MovesCellsByAShareOfTheRegion) {
  RunOp op("deformable_psroi_pooling");
  op.in("Input", {1, 1, 1, 8}, {0, 10, 20, 30, 40, 50, 60, 70})
      .in("ROIs", {1, 4}, {1, 0, 4, 0}, DType::kFloat32, Lod({{0, 1}}))
      .in("Trans", {1, 2, 1, 2}, {0, 2.5, 0, 0})
      .out("TopCount")
      .out("Output");
  op.attr("no_trans", false).attr("output_dim", 1).attr("pooled_width", 2);
  op.attr("spatial_scale", 1.0F).attr("pooled_height", 1).ints("group_size", {1, 1});
  op.ints("part_size", {1, 2}).attr("sample_per_part", 2).attr("trans_std", 0.1F);
  ASSERT_EQ(op.run_text(), "ok");
  // points at 0.5, 1.5 and 2.5, 3.5; the second cell moves by 2.5 * 0.1 * 4 = 1
  EXPECT_THAT(op.values("Output0"), Pointwise(DoubleNear(1e-4), Values{10.0, 40.0}));
  EXPECT_THAT(op.values("TopCount0"), ElementsAre(4, 4));
}

TEST(DeformablePsroiPooling, RefusesWhatDoesNotFit) {
  RunOp op = moved_pool(false);
  op.ints("part_size", {2, 3});
  EXPECT_THAT(op.run_text(), HasSubstr("Trans must be [3, 2 * n, 2, 3]"));
  RunOp channels = moved_pool(true);
  channels.attr("output_dim", 3);
  EXPECT_THAT(channels.run_text(), HasSubstr("Input must have 12 channels"));
}

RunOp straightened(Values corners, int height, int width) {
  RunOp op("roi_perspective_transform");
  Values pixels;
  for (int i = 0; i < 20; ++i) pixels.push_back(i);
  op.in("X", {1, 1, 4, 5}, pixels, kF64)
      .in("ROIs", {1, 8}, std::move(corners), kF64, Lod({{0, 1}}));
  op.out("Out").out("Mask").out("TransformMatrix").out("Out2InIdx").out("Out2InWeights");
  op.attr("transformed_height", height).attr("transformed_width", width);
  return op;
}

// The quadrangle is a box of 3 x 2 pixels; one column of Out is not used.
TEST(RoiPerspectiveTransform, CutsAnUprightBoxOut) {
  RunOp op = straightened({1, 1, 3, 1, 3, 2, 1, 2}, 2, 4);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), Pointwise(DoubleNear(1e-6), Values{6, 7, 8, 0, 11, 12, 13, 0}));
  EXPECT_THAT(op.values("Mask0"), ElementsAre(1, 1, 1, 0, 1, 1, 1, 0));
  EXPECT_THAT(op.values("TransformMatrix0"),
              Pointwise(DoubleNear(1e-6), Values{1, 0, 1, 0, 1, 1, 0, 0, 1}));
  const Values index = op.values("Out2InIdx0");
  EXPECT_THAT(Values(index.begin(), index.begin() + 4), ElementsAre(6, 11, 12, 7));
  EXPECT_THAT(Values(index.begin() + 12, index.begin() + 16), Each(-1));
  EXPECT_NEAR(op.values("Out2InWeights0")[0], 1, 1e-5);
}

// Each corner is shifted by one: a rotation by a quarter turn.
TEST(RoiPerspectiveTransform, TurnsARegion) {
  RunOp op = straightened({3, 0, 3, 2, 1, 2, 1, 0}, 3, 3);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), Pointwise(DoubleNear(1e-6), Values{3, 8, 13, 2, 7, 12, 1, 6, 11}));
}

TEST(RoiPerspectiveTransform, GradientsAgreeWithFiniteDifferences) {
  RunOp op("roi_perspective_transform");
  op.in("X", {2, 2, 6, 7}, noise(168), kF64)
      .in("ROIs", {2, 8}, {2, 1, 10, 2, 11, 9, 1, 8, 3, 3, 9, 2, 12, 11, 2, 7}, kF64,
          Lod({{0, 1, 2}}))
      .out("Out")
      .attr("spatial_scale", 0.5F)
      .attr("transformed_height", 3)
      .attr("transformed_width", 5);
  EXPECT_LT(op.gradient_error({"X"}, "Out0"), 1e-6);
}

TEST(RoiPerspectiveTransform, ADegenerateRegionIsNoError) {
  RunOp op = straightened({1, 1, 1, 1, 1, 1, 1, 1}, 2, 2);
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), Each(6));
  RunOp far = straightened({1e9, 1, 1, 1, 1, 1, 1, 1}, 2, 2);
  EXPECT_THAT(far.run_text(), HasSubstr("expected at most 1e6"));
}

TEST(DeformableConvV1, IsDeformableConvWithWeightsOfOne) {
  const auto run = [](bool first) {
    RunOp op(first ? "deformable_conv_v1" : "deformable_conv");
    op.in("Input", {1, 4, 4, 5}, noise(80), kF64)
        .in("Offset", {1, 16, 3, 4}, noise(192, 2), kF64)
        .in("Filter", {2, 2, 2, 2}, noise(16, 3), kF64)
        .attr("groups", 2)
        .attr("deformable_groups", 2);
    if (!first) op.in("Mask", {1, 8, 3, 4}, {1}, kF64);
    EXPECT_EQ(op.out("Output").run_text(), "ok");
    return op.values("Output0");
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(DeformableConvV1, GradientsAgreeWithFiniteDifferences) {
  RunOp op("deformable_conv_v1");
  op.in("Input", {1, 4, 4, 5}, noise(80), kF64)
      .in("Offset", {1, 16, 3, 4}, noise(192, 2), kF64)
      .in("Filter", {2, 2, 2, 2}, noise(16, 3), kF64)
      .out("Output")
      .attr("groups", 2)
      .attr("deformable_groups", 2);
  EXPECT_LT(op.gradient_error({"Input", "Offset", "Filter"}, "Output0"), 1e-5);
}

TEST(MaxPool3dWithIndex, SaysWhereInTheVolumeTheMaximumStands) {
  RunOp op("max_pool3d_with_index");
  Values x(24, 0);
  x[5] = 3;
  x[18] = 2;
  op.in("X", {1, 1, 3, 2, 4}, x, kF64).out("Out").out("Mask").ints("ksize", {2, 2, 2});
  op.ints("strides", {1, 1, 2});
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(3, 0, 0, 2));
  EXPECT_THAT(op.values("Mask0"), ElementsAre(5, 2, 8, 18));
  RunOp smooth("max_pool3d_with_index");
  smooth.in("X", {1, 2, 3, 3, 4}, noise(72), kF64).out("Out").out("Mask");
  smooth.ints("ksize", {2, 2, 2}).ints("paddings", {1, 0, 1});
  EXPECT_LT(smooth.gradient_error({"X"}, "Out0"), 1e-6);
}

}  // namespace
}  // namespace millrace::kernels
