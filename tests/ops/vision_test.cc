#include <gtest/gtest.h>

#include "tests/ops/one_op.h"

namespace millrace::ops {
namespace {

TEST(AffineGrid, HasAPointForEachPixel) {
  EXPECT_EQ(OneOp("affine_grid")
                .in("Theta", {2, 2, 3})
                .out("Output")
                .ints("output_shape", {2, 1, 5, 6})
                .infer(),
            "Output0 f32[2, 5, 6, 2]");
  EXPECT_EQ(OneOp("affine_grid")
                .in("Theta", {2, 3, 4})
                .in("OutputShape", {5}, kI32)
                .out("Output")
                .infer(),
            "Output0 f32[2, -1, -1, -1, 3]");
  EXPECT_EQ(OneOp("affine_grid").in("Theta", {2, 2, 2}).out("Output").infer(),
            "error: Theta must be [batch, 2, 3] or [batch, 3, 4], found [2, 2, 2]");
  EXPECT_EQ(OneOp("affine_grid")
                .in("Theta", {2, 2, 3})
                .out("Output")
                .ints("output_shape", {5, 6})
                .infer(),
            "error: attribute 'output_shape' must have 4 entries for Theta [2, 2, 3], found 2");
}

TEST(GridSampler, HasTheSizeOfTheGrid) {
  EXPECT_EQ(
      OneOp("grid_sampler").in("X", {2, 3, 8, 8}).in("Grid", {2, 5, 6, 2}).out("Output").infer(),
      "Output0 f32[2, 3, 5, 6]");
  EXPECT_EQ(
      OneOp("grid_sampler").in("X", {2, 3, 8, 8}).in("Grid", {2, 5, 6, 3}).out("Output").infer(),
      "error: Grid must have the rank and batch of X [2, 3, 8, 8] and 2 coordinates, found "
      "[2, 5, 6, 3]");
}

TEST(Rearrange, MovesPixelsAndChannels) {
  EXPECT_EQ(x_out("pixel_shuffle", {1, 8, 3, -1}).attr("upscale_factor", 2).infer(),
            "Out0 f32[1, 2, 6, -1]");
  EXPECT_EQ(x_out("pixel_shuffle", {1, 6, 3, 3}).attr("upscale_factor", 2).infer(),
            "error: dim 1 of X [1, 6, 3, 3] must be a multiple of 4, from attribute "
            "'upscale_factor'");
  EXPECT_EQ(OneOp("pixel_shuffle_grad")
                .in("Out@GRAD", {1, 6, 6, 2})
                .out("X@GRAD")
                .attr("upscale_factor", 2)
                .attr("data_format", "NHWC")
                .infer(),
            "X@GRAD0 f32[1, 3, 3, 8]");
  EXPECT_EQ(x_out("space_to_depth", {1, 2, 4, 6}).attr("blocksize", int64_t{2}).infer(),
            "Out0 f32[1, 8, 2, 3]");
  EXPECT_EQ(x_out("shuffle_channel", {1, 6, 2, 2}).attr("group", 4).infer(),
            "error: attribute 'group' (4) does not divide the channels of X [1, 6, 2, 2]");
  EXPECT_EQ(x_out("temporal_shift", {6, 4, 2, 2}).attr("seg_num", 4).infer(),
            "error: attribute 'seg_num' (4) does not divide the batch of X [6, 4, 2, 2]");
  EXPECT_EQ(x_out("temporal_shift", {6, 4, 2, 2}).attr("seg_num", 3).grad(),
            "temporal_shift_grad(Out@GRAD=Out0@GRAD -> X@GRAD=X0@GRAD)");
}

OneOp roi(llvm::StringRef type, int64_t corners) {
  OneOp op(type);
  op.in("X", {1, 8, 16, 16}).in("ROIs", {5, corners}).out("Out");
  op.attr("pooled_height", 2).attr("pooled_width", 2).attr("spatial_scale", 0.5F);
  return op;
}

TEST(Roi, HasTheCellsOfEachRegion) {
  EXPECT_EQ(roi("roi_align", 4).infer(), "Out0 f32[5, 8, 2, 2]");
  EXPECT_EQ(roi("prroi_pool", 4).infer(), "Out0 f32[5, 8, 2, 2]");
  EXPECT_EQ(roi("roi_pool", 4).out("Argmax").infer(),
            "Out0 f32[5, 8, 2, 2]; Argmax0 i64[5, 8, 2, 2]");
  EXPECT_EQ(roi("psroi_pool", 4).attr("output_channels", 2).infer(), "Out0 f32[5, 2, 2, 2]");
  EXPECT_EQ(roi("psroi_pool", 4).attr("output_channels", 3).infer(),
            "error: X must have 12 channels, attributes 'output_channels' * 'pooled_height' * "
            "'pooled_width', found [1, 8, 16, 16]");
  EXPECT_EQ(roi("roi_align", 5).infer(), "error: ROIs must be [regions, 4], found [5, 5]");
  EXPECT_EQ(roi("prroi_pool", 4).grad(),
            "prroi_pool_grad(Out=Out0; Out@GRAD=Out0@GRAD; ROIs=ROIs0; X=X0 -> "
            "ROIs@GRAD=ROIs0@GRAD; X@GRAD=X0@GRAD)");
}

}  // namespace
}  // namespace millrace::ops
