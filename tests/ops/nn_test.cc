#include <gtest/gtest.h>

#include "tests/ops/one_op.h"

namespace millrace::ops {
namespace {

OneOp conv(llvm::StringRef type, const Dims& input, const Dims& filter) {
  OneOp op(type);
  op.in("Input", input).in("Filter", filter).out("Output");
  return op;
}

TEST(Conv, CountsWindows) {
  EXPECT_EQ(conv("conv2d", {-1, 3, 224, 224}, {64, 3, 7, 7})
                .ints("strides", {2, 2})
                .ints("paddings", {3, 3})
                .infer(),
            "Output0 f32[-1, 64, 112, 112]");
  EXPECT_EQ(conv("conv2d", {2, 3, -1, 9}, {4, 3, 3, 3}).ints("dilations", {2, 2}).infer(),
            "Output0 f32[2, 4, -1, 5]");
  EXPECT_EQ(conv("conv2d", {2, 9, 8, 3}, {4, 3, 3, 3}).attr("data_format", "NHWC").infer(),
            "Output0 f32[2, 7, 6, 4]");
  EXPECT_EQ(conv("conv2d", {2, 3, 9, 9}, {4, 3, 2, 2}).ints("paddings", {1, 0, 0, 2}).infer(),
            "Output0 f32[2, 4, 9, 10]");
  EXPECT_EQ(conv("depthwise_conv2d", {2, 8, 9, 9}, {8, 1, 3, 3})
                .attr("groups", 8)
                .ints("strides", {2, 2})
                .attr("padding_algorithm", "SAME")
                .infer(),
            "Output0 f32[2, 8, 5, 5]");
  EXPECT_EQ(conv("conv3d", {1, 2, 5, 6, 7}, {4, 2, 3, 3, 3})
                .ints("paddings", {1, 1, 1})
                .attr("padding_algorithm", "VALID")
                .infer(),
            "Output0 f32[1, 4, 3, 4, 5]");
  EXPECT_EQ(OneOp("conv2d").in_unknown("Input").in("Filter", {1, 1, 1, 1}).out("Output").infer(),
            "Output0 ?");
}

TEST(Conv, NamesWhatDoesNotFit) {
  EXPECT_EQ(conv("conv2d", {2, 4, 9, 9}, {4, 3, 3, 3}).infer(),
            "error: Input [2, 4, 9, 9] must have 3 channels, 3 of Filter [4, 3, 3, 3] times "
            "attribute 'groups' 1");
  EXPECT_EQ(conv("conv2d", {2, 4, 9, 9}, {5, 2, 3, 3}).attr("groups", 2).infer(),
            "error: attribute 'groups' (2) does not divide the 5 output channels of Filter "
            "[5, 2, 3, 3]");
  EXPECT_EQ(conv("conv2d", {2, 3, 2, 9}, {4, 3, 3, 3}).infer(),
            "error: Filter of size 3 (dilated by 1) does not fit in spatial dim 0 of Input of size "
            "2 padded by 0 and 0");
  EXPECT_EQ(conv("conv2d", {2, 3, 9, 9}, {4, 3, 3, 3}).ints("strides", {1}).infer(),
            "error: attribute 'strides' must have 2 entries, found 1");
  EXPECT_EQ(conv("conv2d", {2, 3, 9, 9}, {4, 3, 3, 3}).ints("dilations", {}).infer(),
            "error: attribute 'dilations' must have 2 entries, found 0");
  EXPECT_EQ(conv("conv2d", {2, 3, 9, 9}, {4, 3, 3, 3}).ints("paddings", {1, 1, 1}).infer(),
            "error: attribute 'paddings' must have 2 or 4 entries, found 3");
  EXPECT_EQ(conv("conv2d", {2, 3, 9}, {4, 3, 3, 3}).infer(),
            "error: Input [2, 3, 9] and Filter [4, 3, 3, 3] must have the same rank, at least 3");
}

TEST(Conv, LeavesOutUnwantedGradients) {
  EXPECT_EQ(conv("conv2d", {2, 3, 9, 9}, {4, 3, 3, 3}).grad(),
            "conv2d_grad(Filter=Filter0; Input=Input0; Output@GRAD=Output0@GRAD -> "
            "Filter@GRAD=Filter0@GRAD; Input@GRAD=Input0@GRAD)");
  EXPECT_EQ(conv("conv2d", {2, 3, 9, 9}, {4, 3, 3, 3}).grad({"Input0"}),
            "conv2d_grad(Filter=Filter0; Input=Input0; Output@GRAD=Output0@GRAD -> "
            "Filter@GRAD=Filter0@GRAD)");
  EXPECT_EQ(conv("conv2d", {2, 3, 9, 9}, {4, 3, 3, 3}).grad({"Input0", "Filter0"}), "");
}

TEST(ConvTranspose, InvertsTheSizes) {
  EXPECT_EQ(conv("conv2d_transpose", {1, 8, 5, -1}, {8, 3, 4, 4})
                .ints("strides", {2, 2})
                .ints("paddings", {1, 1})
                .infer(),
            "Output0 f32[1, 3, 10, -1]");
  EXPECT_EQ(conv("conv2d_transpose", {1, 8, 5, 5}, {8, 3, 3, 3})
                .ints("strides", {2, 2})
                .ints("output_size", {12, 11})
                .attr("groups", 2)
                .infer(),
            "Output0 f32[1, 6, 12, 11]");
  EXPECT_EQ(conv("conv3d_transpose", {1, 2, 3, 3, 3}, {2, 4, 2, 2, 2})
                .ints("output_padding", {1, 0, 0})
                .infer(),
            "Output0 f32[1, 4, 5, 4, 4]");
  EXPECT_EQ(conv("conv2d_transpose", {1, 8, 5, 5}, {8, 3, 3, 3})
                .ints("strides", {2, 2})
                .ints("output_size", {13, 11})
                .infer(),
            "error: attribute 'output_size' is 13 in spatial dim 0, expected [11, 13)");
  EXPECT_EQ(conv("depthwise_conv2d_transpose", {1, 4, 5, 5}, {8, 1, 3, 3}).infer(),
            "error: Input [1, 4, 5, 5] must have the 8 channels of Filter [8, 1, 3, 3]");
}

TEST(DeformableConv, ChecksTheFields) {
  const auto deformed = [](int64_t offsets) {
    return conv("deformable_conv", {1, 4, 6, 6}, {2, 4, 3, 3})
        .in("Offset", {1, offsets, 4, 4})
        .in("Mask", {1, 9, 4, 4})
        .infer();
  };
  EXPECT_EQ(deformed(18), "Output0 f32[1, 2, 4, 4]");
  EXPECT_EQ(deformed(9), "error: Offset must be [batch, 18, 4, 4], found [1, 9, 4, 4]");
}

OneOp pool(const Dims& dims, std::vector<int32_t> kernel, std::vector<int32_t> strides) {
  OneOp op(dims.size() == 4 ? "pool2d" : "pool3d");
  op.in("X", dims).out("Out").attr("pooling_type", "max");
  op.ints("ksize", std::move(kernel)).ints("strides", std::move(strides));
  return op;
}

TEST(Pool, CountsWindows) {
  EXPECT_EQ(pool({2, 3, 7, 8}, {3, 3}, {2, 2}).infer(), "Out0 f32[2, 3, 3, 3]");
  EXPECT_EQ(pool({2, 3, 7, 8}, {3, 3}, {2, 2}).attr("ceil_mode", true).infer(),
            "Out0 f32[2, 3, 3, 4]");
  EXPECT_EQ(pool({2, 3, -1, 8}, {-1, -1}, {1, 1}).attr("global_pooling", true).infer(),
            "Out0 f32[2, 3, 1, 1]");
  EXPECT_EQ(pool({2, 3, -1, 8}, {1, 1}, {1, 1})
                .attr("global_pooling", true)
                .attr("adaptive", true)
                .infer(),
            "Out0 f32[2, 3, -1, 8]");
  EXPECT_EQ(
      pool({2, 7, 8, 3}, {2, 3}, {1, 1}).attr("adaptive", true).attr("data_format", "NHWC").infer(),
      "Out0 f32[2, 2, 3, 3]");
  EXPECT_EQ(pool({2, 3, 7, 8, 9}, {2, 2, 2}, {2, 2, 2}).attr("padding_algorithm", "SAME").infer(),
            "Out0 f32[2, 3, 4, 4, 5]");
  EXPECT_EQ(x_out("max_pool2d_with_index", {2, 3, 6, 6})
                .out("Mask")
                .ints("ksize", {2, 2})
                .ints("strides", {2, 2})
                .infer(),
            "Out0 f32[2, 3, 3, 3]; Mask0 i32[2, 3, 3, 3]");
}

TEST(Pool, NamesWhatDoesNotFit) {
  EXPECT_EQ(pool({2, 3, 2, 8}, {3, 3}, {1, 1}).infer(),
            "error: a window of attribute 'ksize' 3 does not fit in spatial dim 0 of X of size 2 "
            "padded by 0 and 0");
  EXPECT_EQ(pool({2, 3, 7, 8}, {-1, -1}, {1, 1}).infer(),
            "error: attribute 'ksize' must be at least 1, found -1");
  EXPECT_EQ(pool({2, 3, 7, 8}, {3}, {1, 1}).infer(),
            "error: attribute 'ksize' must have 2 entries, found 1");
}

TEST(Unpool, UndoesThePooling) {
  EXPECT_EQ(x_out("unpool", {1, 2, 3, 3})
                .in("Indices", {1, 2, 3, 3}, kI32)
                .ints("ksize", {2, 2})
                .ints("strides", {2, 2})
                .infer(),
            "Out0 f32[1, 2, 6, 6]");
  EXPECT_EQ(
      x_out("spp", {2, 3, 8, 8}).attr("pyramid_height", 3).attr("pooling_type", "max").infer(),
      "Out0 f32[2, 63]");
}

OneOp batch_norm(const Dims& x, int64_t channels) {
  OneOp op("batch_norm");
  op.in("X", x);
  for (const char* const slot : {"Scale", "Bias", "Mean", "Variance"}) op.in(slot, {channels});
  for (const char* const slot : {"Y", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance"})
    op.out(slot);
  return op;
}

TEST(BatchNorm, HasStatisticsOfChannels) {
  EXPECT_EQ(batch_norm({-1, 8, 4, 4}, 8).infer(),
            "Y0 f32[-1, 8, 4, 4]; MeanOut0 f32[8]; VarianceOut0 f32[8]; SavedMean0 f32[8]; "
            "SavedVariance0 f32[8]");
  EXPECT_EQ(batch_norm({2, 8, 4, 4}, 4).infer(),
            "error: Scale must have one element for each of the 8 channels of X, found [4]");
  EXPECT_EQ(batch_norm({8}, 8).infer(), "error: X must have a rank from 2 to 5, found [8]");
}

TEST(BatchNorm, PassesRunningStatisticsWhereTheyWereUsed) {
  EXPECT_EQ(batch_norm({2, 8}, 8).grad(),
            "batch_norm_grad(Bias=Bias0; MeanOut=MeanOut0; SavedMean=SavedMean0; "
            "SavedVariance=SavedVariance0; Scale=Scale0; VarianceOut=VarianceOut0; X=X0; "
            "Y@GRAD=Y0@GRAD -> Bias@GRAD=Bias0@GRAD; Scale@GRAD=Scale0@GRAD; X@GRAD=X0@GRAD)");
  EXPECT_EQ(batch_norm({2, 8}, 8).attr("use_global_stats", true).grad({"Scale0", "Bias0"}),
            "batch_norm_grad(Bias=Bias0; Mean=MeanOut0; MeanOut=MeanOut0; SavedMean=SavedMean0; "
            "SavedVariance=SavedVariance0; Scale=Scale0; Variance=VarianceOut0; "
            "VarianceOut=VarianceOut0; X=X0; Y@GRAD=Y0@GRAD -> X@GRAD=X0@GRAD)");
  EXPECT_EQ(batch_norm({2, 8}, 8).grad({"X0", "Scale0", "Bias0"}), "");
}

TEST(DataNorm, UpdatesItsStatisticsInTheGradient) {
  OneOp op("data_norm");
  op.in("X", {-1, 3}).in("BatchSize", {3}).in("BatchSum", {3}).in("BatchSquareSum", {3});
  op.out("Y").out("Means").out("Scales");
  EXPECT_EQ(op.infer(), "Y0 f32[-1, 3]; Means0 f32[3]; Scales0 f32[3]");
  EXPECT_EQ(op.grad({"BatchSize0"}),
            "data_norm_grad(Means=Means0; Scales=Scales0; X=X0; Y@GRAD=Y0@GRAD -> "
            "BatchSize=BatchSize0; BatchSquareSum=BatchSquareSum0; "
            "BatchSquareSum@GRAD=BatchSquareSum0@GRAD; BatchSum=BatchSum0; "
            "BatchSum@GRAD=BatchSum0@GRAD; X@GRAD=X0@GRAD)");
}

TEST(Norm, HasStatisticsOfItsParts) {
  EXPECT_EQ(OneOp("layer_norm")
                .in("X", {2, 3, 4})
                .in("Scale", {4})
                .out("Y")
                .out("Mean")
                .attr("begin_norm_axis", 2)
                .infer(),
            "Y0 f32[2, 3, 4]; Mean0 f32[2, 3]");
  EXPECT_EQ(OneOp("layer_norm").in("X", {2, 3}).in("Scale", {4}).out("Y").infer(),
            "error: Scale must have 3 elements, found [4]");
  EXPECT_EQ(OneOp("layer_norm").in("X", {2}).out("Y").infer(),
            "error: attribute 'begin_norm_axis' (1) must be less than the rank of X [2]");
  EXPECT_EQ(OneOp("group_norm").in("X", {2, 6, 4}).out("Mean").attr("groups", 3).infer(),
            "Mean0 f32[2, 3]");
  EXPECT_EQ(OneOp("group_norm").in("X", {2, 6, 4}).out("Y").attr("groups", 4).infer(),
            "error: attribute 'groups' (4) does not divide the 6 channels of X [2, 6, 4]");
  EXPECT_EQ(OneOp("instance_norm").in("X", {2, 6, 4}).out("SavedMean").infer(),
            "SavedMean0 f32[12]");
  EXPECT_EQ(OneOp("instance_norm_grad")
                .in("X", {2, 6, 4})
                .in("Scale", {6})
                .out("X@GRAD")
                .out("Bias@GRAD")
                .infer(),
            "X@GRAD0 f32[2, 6, 4]; Bias@GRAD0 f32[6]");
}

TEST(Interp, TakesSizesFromTensorsFactorsOrAttributes) {
  EXPECT_EQ(x_out("nearest_interp", {1, 3, 5, -1}).attr("scale", 2.0F).infer(),
            "Out0 f32[1, 3, 10, -1]");
  EXPECT_EQ(x_out("bilinear_interp", {1, 3, 5, 5}).attr("out_h", 7).attr("out_w", 8).infer(),
            "Out0 f32[1, 3, 7, 8]");
  EXPECT_EQ(x_out("bilinear_interp_v2", {1, 5, 6, 3})
                .attr("scale", std::vector<float>{0.5F, 2.0F})
                .attr("data_layout", "NHWC")
                .infer(),
            "Out0 f32[1, 2, 12, 3]");
  EXPECT_EQ(x_out("bicubic_interp_v2", {1, 3, 5, 5}).in("OutSize", {2}, kI32).infer(),
            "Out0 f32[1, 3, -1, -1]");
  EXPECT_EQ(x_out("linear_interp_v2", {1, 3, 5}).attr("out_w", 8).infer(), "Out0 f32[1, 3, 8]");
  EXPECT_EQ(x_out("trilinear_interp_v2", {1, 3, 5, 5, 5})
                .attr("out_d", 1)
                .attr("out_h", 2)
                .attr("out_w", 3)
                .infer(),
            "Out0 f32[1, 3, 1, 2, 3]");
  EXPECT_EQ(
      x_out("trilinear_interp_v2", {1, 3, 5, 5, 5}).attr("interp_method", "bicubic").infer(),
      "error: attribute 'interp_method' is bicubic, which is not a method for 3 spatial dims");
  EXPECT_EQ(x_out("bilinear_interp", {1, 3, 5, 5}).attr("interp_method", "linear").infer(),
            "error: attribute 'interp_method' is linear, which is not a method for 2 spatial dims");
  EXPECT_EQ(x_out("nearest_interp_v2", {1, 3, 5, 5}).attr("out_h", 2).infer(),
            "error: attribute 'out_w' must be positive where no scale is given, found 0");
}

TEST(Channels, AreDividedOrScaled) {
  EXPECT_EQ(x_out("maxout", {1, 6, 2, 2}).attr("groups", 3).infer(), "Out0 f32[1, 2, 2, 2]");
  EXPECT_EQ(x_out("maxout", {1, 6, 2, 2}).attr("groups", 4).infer(),
            "error: attribute 'groups' (4) does not divide dim 1 of X [1, 6, 2, 2]");
  EXPECT_EQ(x_out("lrn", {1, 6, 2, 2}).out("MidOut").infer(),
            "Out0 f32[1, 6, 2, 2]; MidOut0 f32[1, 6, 2, 2]");
  EXPECT_EQ(x_out("lrn", {1, 6, 2, 2}).attr("n", 4).infer(),
            "error: attribute 'n' must be odd, found 4");
  EXPECT_EQ(x_out("affine_channel", {1, 6, 2, 2}).in("Scale", {3}).in("Bias", {6}).infer(),
            "error: Scale must have 6 elements, found [3]");
}

TEST(Rows, KeepTheirLod) {
  EXPECT_EQ(OneOp("row_conv").in("X", {-1, 8}, kF32, 1).in("Filter", {3, 8}).out("Out").infer(),
            "Out0 f32[-1, 8] lod1");
  EXPECT_EQ(x_out("row_conv", {4, 8}).in("Filter", {3, 7}).infer(),
            "error: Filter [3, 7] must have the columns of X [4, 8]");
  EXPECT_EQ(x_out("conv_shift", {4, 8}).in("Y", {4, 2}).infer(),
            "error: Y must have an odd number of columns, found [4, 2]");
  EXPECT_EQ(x_out("fsp", {1, 2, 4, 4}).in("Y", {1, 3, 4, 4}).infer(), "Out0 f32[1, 2, 3]");
  EXPECT_EQ(OneOp("spectral_norm").in("Weight", {2, 3}).out("Out").infer(), "Out0 f32[2, 3]");
  EXPECT_EQ(OneOp("tree_conv")
                .in("NodesVector", {1, 5, 4})
                .in("EdgeSet", {1, 6, 2}, kI32)
                .in("Filter", {4, 3, 7, 2})
                .out("Out")
                .infer(),
            "Out0 f32[1, 5, 7, 2]");
  EXPECT_EQ(OneOp("add_position_encoding_grad").in("Out@GRAD", {2, 3, 4}).out("X@GRAD").infer(),
            "X@GRAD0 f32[2, 3, 4]");
}

TEST(Unfold, LaysOutWindows) {
  EXPECT_EQ(OneOp("unfold")
                .in("X", {2, 3, 5, 6})
                .out("Y")
                .ints("kernel_sizes", {2, 3})
                .ints("strides", {1, 1})
                .ints("paddings", {0, 0, 0, 0})
                .ints("dilations", {1, 1})
                .infer(),
            "Y0 f32[2, 18, 16]");
  EXPECT_EQ(x_out("im2sequence", {2, 3, 5, 6}).ints("kernels", {2, 2}).infer(),
            "Out0 f32[40, 12] lod1");
  EXPECT_EQ(x_out("im2sequence", {-1, 3, 5, 6}).ints("kernels", {7, 2}).infer(),
            "error: a window of size 7 does not fit in dim 2 of X [-1, 3, 5, 6] padded by 0 and 0");
}

TEST(DeformableConvV1, HasNoMask) {
  OneOp op("deformable_conv_v1");
  op.in("Input", {2, 4, 6, 6}).in("Offset", {2, 18, 4, 4}).in("Filter", {3, 4, 3, 3}).out("Output");
  EXPECT_EQ(op.infer(), "Output0 f32[2, 3, 4, 4]");
  EXPECT_EQ(op.grad(),
            "deformable_conv_v1_grad(Filter=Filter0; Input=Input0; Offset=Offset0; "
            "Output@GRAD=Output0@GRAD -> Filter@GRAD=Filter0@GRAD; Input@GRAD=Input0@GRAD; "
            "Offset@GRAD=Offset0@GRAD)");
}

TEST(MaxPool3dWithIndex, HasAPlaceForEachMaximum) {
  OneOp op("max_pool3d_with_index");
  op.in("X", {1, 2, 5, 6, -1}).out("Out").out("Mask").ints("ksize", {2, 2, 2});
  op.ints("strides", {2, 2, 2});
  EXPECT_EQ(op.infer(), "Out0 f32[1, 2, 2, 3, -1]; Mask0 i32[1, 2, 2, 3, -1]");
  EXPECT_EQ(op.grad(),
            "max_pool3d_with_index_grad(Mask=Mask0; Out@GRAD=Out0@GRAD; X=X0 -> "
            "X@GRAD=X0@GRAD)");
}

TEST(Conv2dFusion, GivesChannelsInParts) {
  for (const char* const type : {"conv2d_fusion", "fused_conv2d_add_act"}) {
    OneOp op(type);
    op.in("Input", {-1, 6, 6, 4}).in("Filter", {3, 4, 3, 3}).out("Output").out("Outputs", 2);
    op.attr("data_format", "NHWC").ints("split_channels", {1, 2});
    EXPECT_EQ(op.infer(),
              "Output0 f32[-1, 4, 4, 3]; Outputs0 f32[-1, 4, 4, 1]; Outputs1 f32[-1, 4, 4, 2]");
    op.ints("split_channels", {3});
    EXPECT_EQ(op.infer(),
              "error: Outputs must have a var for each of the 1 entries of attribute "
              "'split_channels', found 2");
  }
}

}  // namespace
}  // namespace millrace::ops
