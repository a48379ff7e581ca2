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
  EXPECT_EQ(x_out("space_to_depth", {1, 4, 4, 6}).attr("blocksize", int64_t{2}).infer(),
            "Out0 f32[1, 16, 2, 3]");
  EXPECT_EQ(x_out("space_to_depth", {1, 2, 4, 6}).attr("blocksize", int64_t{2}).infer(),
            "error: the square of attribute 'blocksize' (2) does not divide the channels of X "
            "[1, 2, 4, 6]");
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

TEST(WarpedRois, HaveTheSizeOfTheirAttributes) {
  OneOp pool("deformable_psroi_pooling");
  pool.in("Input", {2, 12, 9, 9}).in("ROIs", {-1, 4}, kF32, 1).in("Trans", {-1, 2, 3, 3});
  pool.out("TopCount").out("Output").attr("output_dim", 3).ints("group_size", {2, 2});
  pool.ints("part_size", {3, 3}).attr("pooled_height", 3).attr("pooled_width", 4);
  EXPECT_EQ(pool.infer(), "TopCount0 f32[-1, 3, 3, 4]; Output0 f32[-1, 3, 3, 4]");
  EXPECT_EQ(pool.grad(),
            "deformable_psroi_pooling_grad(Input=Input0; Output@GRAD=Output0@GRAD; ROIs=ROIs0; "
            "TopCount=TopCount0; Trans=Trans0 -> Input@GRAD=Input0@GRAD; Trans@GRAD=Trans0@GRAD)");
  pool.ints("part_size", {3});
  EXPECT_EQ(pool.infer(),
            "error: attribute 'part_size' must be a height and a width of at least 1, found [3]");

  OneOp warp("roi_perspective_transform");
  warp.in("X", {2, 3, 9, 9}).in("ROIs", {5, 8}, kF32, 1).out("Out").out("Mask");
  warp.out("TransformMatrix").out("Out2InIdx").attr("transformed_height", 2);
  warp.attr("transformed_width", 7);
  EXPECT_EQ(warp.infer(),
            "Out0 f32[5, 3, 2, 7]; Mask0 i32[5, 1, 2, 7]; TransformMatrix0 f32[5, 9]; Out2InIdx0 "
            "i32[5, 14, 4]");
  EXPECT_EQ(warp.grad({"ROIs0"}),
            "roi_perspective_transform_grad(Out@GRAD=Out0@GRAD; ROIs=ROIs0; X=X0 -> "
            "X@GRAD=X0@GRAD)");
  OneOp boxes("roi_perspective_transform");
  boxes.in("X", {2, 3, 9, 9}).in("ROIs", {5, 4}, kF32, 1).out("Out");
  EXPECT_EQ(boxes.infer(), "error: ROIs must be [regions, 8], found [5, 4]");
}

}  // namespace
}  // namespace millrace::ops
