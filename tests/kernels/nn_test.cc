// Properties of the kernels of ops/nn that the reference corpus does not cover: oneDNN compared
// with the plain convolution, gradients that the corpus lacks, empty tensors, messages.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/nn/plain_conv.h"
#include "kernels/cpu/onednn.h"
#include "tests/kernels/run_op.h"

namespace millrace::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> floats(size_t count, unsigned start) {
  const std::vector<double> values = noise(count, start);
  return {values.begin(), values.end()};
}

void expect_near_nn(const std::vector<float>& found, const std::vector<float>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], wanted[i], 1e-4F * (1 + std::fabs(wanted[i]))) << i;
}

// Channels, groups, kernel, stride, dilation, padding in front and behind.
struct Form {
  int64_t in, out, groups, kernel, stride, dilation, before, after;
};

TEST(Conv, OneDnnAgreesWithThePlainKernelInAllPasses) {
  const std::vector<Form> forms = {{3, 5, 1, 3, 1, 1, 1, 1},   {4, 8, 2, 3, 2, 1, 0, 2},
                                   {16, 16, 1, 1, 2, 1, 0, 0}, {6, 6, 6, 3, 1, 2, 2, 2},
                                   {2, 3, 1, 2, 3, 1, 5, 0},   {1, 17, 1, 5, 1, 1, 4, 4}};
  for (const Form& f : forms) {
    SCOPED_TRACE(f.kernel * 1000 + f.in);
    CpuDevice device(2);
    const int64_t size = 11;
    const int64_t extent = f.dilation * (f.kernel - 1) + 1;
    const int64_t places = (size + f.before + f.after - extent) / f.stride + 1;
    dnn::Convolution spec{dnn::dense(DType::kFloat32, {2, f.in, size, size}),
                          dnn::dense(DType::kFloat32, {f.groups, f.out / f.groups, f.in / f.groups,
                                                       f.kernel, f.kernel}),
                          dnn::dense(DType::kFloat32, {2, f.out, places, places}),
                          {f.stride, f.stride},
                          {f.dilation, f.dilation},
                          {f.before, f.before},
                          {f.after, f.after}};
    const auto x = floats(static_cast<size_t>(2 * f.in * size * size), 1);
    const auto w = floats(static_cast<size_t>(f.out * f.in / f.groups * f.kernel * f.kernel), 2);
    const auto g = floats(static_cast<size_t>(2 * f.out * places * places), 3);
    std::vector<float> y(g.size()), y2(g.size()), dx(x.size()), dx2(x.size()), dw(w.size()),
        dw2(w.size());
    using dnn::Arg;
    auto forward = dnn::convolution(device, spec);
    ASSERT_TRUE(forward.ok()) << forward.status().to_string();
    ASSERT_TRUE(
        forward
            ->run(device, {{Arg::kSrc, x.data()}, {Arg::kWeights, w.data()}, {Arg::kDst, y.data()}})
            .ok());
    ASSERT_TRUE(plain_convolution(device, spec, x.data(), w.data(), y2.data()).ok());
    expect_near_nn(y, y2);
    auto data = dnn::convolution_backward_data(device, spec);
    ASSERT_TRUE(data.ok()) << data.status().to_string();
    ASSERT_TRUE(data->run(device, {{Arg::kDiffDst, g.data()},
                                   {Arg::kWeights, w.data()},
                                   {Arg::kDiffSrc, dx.data()}})
                    .ok());
    ASSERT_TRUE(plain_convolution_backward_data(device, spec, g.data(), w.data(), dx2.data()).ok());
    expect_near_nn(dx, dx2);
    auto weights = dnn::convolution_backward_weights(device, spec);
    ASSERT_TRUE(weights.ok()) << weights.status().to_string();
    ASSERT_TRUE(weights
                    ->run(device, {{Arg::kSrc, x.data()},
                                   {Arg::kDiffDst, g.data()},
                                   {Arg::kDiffWeights, dw.data()}})
                    .ok());
    ASSERT_TRUE(
        plain_convolution_backward_weights(device, spec, x.data(), g.data(), dw2.data()).ok());
    expect_near_nn(dw, dw2);
  }
}

TEST(Conv, BiasAndResidualAreAdded) {
  RunOp op("conv2d");
  op.in("Input", {1, 1, 2, 2}, {1, 2, 3, 4})
      .in("Filter", {2, 1, 1, 1}, {1, 10})
      .in("Bias", {2}, {0.5, -0.5})
      .in("ResidualData", {1, 2, 2, 2}, {100})
      .out("Output");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Output0"),
              ElementsAre(101.5, 102.5, 103.5, 104.5, 109.5, 119.5, 129.5, 139.5));
}

TEST(Conv, GradientsAgreeWithFiniteDifferences) {
  RunOp op("conv2d");
  op.in("Input", {2, 4, 5, 4}, noise(160), DType::kFloat64)
      .in("Filter", {6, 2, 3, 2}, noise(72, 2), DType::kFloat64)
      .in("Bias", {6}, noise(6, 3), DType::kFloat64)
      .out("Output")
      .ints("strides", {2, 1})
      .ints("paddings", {1, 0, 2, 1})
      .attr("groups", 2);
  EXPECT_LT(op.gradient_error({"Input", "Filter", "Bias"}, "Output0"), 1e-6);
}

TEST(Conv, AnEmptyBatchGivesAnEmptyResultAndZeroGradients) {
  RunOp op("conv2d");
  op.in("Input", {0, 2, 4, 4}, {}).in("Filter", {3, 2, 3, 3}, {1}).out("Output");
  op.with_grad({"Input", "Filter"}).feed("Output0@GRAD", {0, 3, 2, 2}, {});
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_EQ(op.tensor("Output0").numel(), 0);
  EXPECT_THAT(op.values("Filter0@GRAD"), ::testing::Each(0.0));
}

TEST(Conv, AGradientOfTheWrongShapeIsRefused) {
  RunOp op("conv2d_grad");
  op.in("Input", {1, 1, 4, 4}, {1})
      .in("Filter", {1, 1, 3, 3}, {1})
      .in("Output@GRAD", {1, 1, 3, 2}, {1})
      .out("Input@GRAD");
  EXPECT_THAT(op.run_text(), HasSubstr("the output dims do not fit the window: images f32 [1, "
                                       "1, 4, 4] and f32 [1, 1, 3, 2], filter f32 [1, 1, 3, 3]"));
}

TEST(Conv, ResultsDoNotDependOnTheRun) {
  std::vector<double> first;
  for (int i = 0; i < 3; ++i) {
    RunOp op("conv2d");
    op.in("Input", {2, 16, 20, 20}, noise(12800)).in("Filter", {16, 16, 3, 3}, noise(2304, 2));
    op.out("Output");
    ASSERT_EQ(op.run_text(2), "ok");
    if (i == 0) first = op.values("Output0");
    EXPECT_EQ(op.values("Output0"), first);
  }
}

TEST(Pool, AdaptiveMaximumWithIndexLooksAtItsShareOnly) {
  RunOp op("max_pool2d_with_index");
  op.in("X", {1, 1, 1, 5}, {5, 1, 2, 3, 4}).out("Out").out("Mask").ints("ksize", {1, 2});
  ASSERT_EQ(op.attr("adaptive", true).run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(5, 4));
}

// Values of release 2.6.2: `adaptive` sets the number of windows of a maximum, not their limits.
TEST(Pool, AdaptiveMaximaOfPoolOpsSlide) {
  RunOp op("pool2d");
  op.in("X", {1, 1, 5, 6}, {6, 22, 13, 18, 4, 3,  2,  23, 12, 10, 28, 27, 25, 7,  26,
                            8, 29, 9,  19, 0, 14, 21, 17, 20, 5,  16, 15, 1,  11, 24});
  op.out("Out").attr("pooling_type", "max").attr("adaptive", true).ints("ksize", {2, 3});
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(23, 23, 28, 26, 26, 29));
  op.ints("strides", {2, 2}).ints("paddings", {1, 1});  // paddings have no effect
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Out0"), ElementsAre(23, 28, 28, 26, 29, 29));
}

TEST(Pool, GradientsAgreeWithFiniteDifferences) {
  for (const char* const type : {"max", "avg"}) {
    for (const char* const format : {"NCHW", "NHWC"}) {
      RunOp op("pool2d");
      op.in("X", {2, 5, 6, 3}, noise(180), DType::kFloat64)
          .out("Out")
          .ints("ksize", {3, 2})
          .ints("strides", {2, 1})
          .ints("paddings", {1, 1})
          .attr("pooling_type", type)
          .attr("data_format", format)
          .attr("ceil_mode", true);
      EXPECT_LT(op.gradient_error({"X"}, "Out0"), 1e-6) << type << format;
    }
  }
}

// Windows of two by two in a plane, and channels that fill registers, have loops of their own.
TEST(Pool, GradientsOfSmallWindowsAndOfBlocksOfChannelsAgreeWithFiniteDifferences) {
  for (const Dims& dims : {Dims{2, 3, 5, 7}, Dims{1, 5, 6, 4}, Dims{1, 4, 3, 8}}) {
    for (const char* const type : {"max", "avg"}) {
      for (const int32_t padding : {0, 1}) {
        RunOp op("pool2d");
        op.in("X", dims, noise(static_cast<size_t>(count_of(dims))), DType::kFloat64)
            .out("Out")
            .ints("ksize", {2, 2})
            .ints("strides", {2, 2})
            .ints("paddings", {padding, padding})
            .attr("pooling_type", type)
            .attr("data_format", dims[0] == 2 ? "NCHW" : "NHWC");
        EXPECT_LT(op.gradient_error({"X"}, "Out0"), 1e-6) << type << padding << dims[3];
      }
    }
  }
}

// A NaN is no maximum. One channel with its pixels in lines, and eight channels.
TEST(Pool, OfEqualMaximaTheFirstGetsTheGradient) {
  const std::vector<double> pixels = {NAN, 1, 2, 2, 1, 1, 2, 2};
  for (const int64_t channels : {1, 8}) {
    std::vector<double> image;
    for (const double pixel : pixels)
      image.insert(image.end(), static_cast<size_t>(channels), pixel);
    const bool plane = channels == 1;
    RunOp op("pool2d");
    op.in("X", plane ? Dims{1, 1, 2, 4} : Dims{1, 2, 4, channels}, image)
        .out("Out")
        .ints("ksize", {2, 2})
        .ints("strides", {2, 2})
        .attr("pooling_type", "max")
        .attr("data_format", plane ? "NCHW" : "NHWC")
        .with_grad({"X"})
        .feed("Out0@GRAD", plane ? Dims{1, 1, 1, 2} : Dims{1, 1, 2, channels}, {5});
    ASSERT_EQ(op.run_text(), "ok");
    const std::vector<double> found = op.values("X0@GRAD");
    for (size_t i = 0; i < found.size(); ++i) {
      const size_t pixel = i / static_cast<size_t>(channels);
      EXPECT_EQ(found[i], pixel == 1 || pixel == 2 ? 5 : 0) << i;
    }
  }
}

TEST(Pool, AMaskOutsideOfTheImageIsRefused) {
  RunOp op("max_pool2d_with_index_grad");
  op.in("X", {1, 1, 2, 2}, {1})
      .in("Mask", {1, 1, 1, 1}, {4}, DType::kInt32)
      .in("Out@GRAD", {1, 1, 1, 1}, {1})
      .out("X@GRAD")
      .ints("ksize", {2, 2});
  EXPECT_EQ(op.run_text(), "Mask has position 4 in an image of 4 elements");
}

TEST(Pool, AWindowWithoutAMaximumPassesNoGradient) {
  RunOp op("max_pool2d_with_index_grad");
  op.in("X", {1, 1, 2, 2}, {NAN, NAN, NAN, NAN})
      .in("Mask", {1, 1, 1, 1}, {-1}, DType::kInt32)
      .in("Out@GRAD", {1, 1, 1, 1}, {1})
      .out("X@GRAD")
      .ints("ksize", {2, 2});
  EXPECT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("X@GRAD0"), ::testing::Each(0));
}

TEST(BatchNorm, OneValueAChannelPassesAndLeavesTheStatistics) {
  RunOp op("batch_norm");
  op.in("X", {1, 2}, {3, -4})
      .in("Scale", {2}, {10})
      .in("Bias", {2}, {1})
      .in("Mean", {2}, {0.5})
      .in("Variance", {2}, {2})
      .out("Y")
      .out_in_place("MeanOut", "Mean")
      .out_in_place("VarianceOut", "Variance")
      .out("SavedMean")
      .out("SavedVariance");
  op.with_grad({"X", "Scale", "Bias"}).feed("Y0@GRAD", {1, 2}, {5, 6});
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Y0"), ElementsAre(3, -4));
  EXPECT_THAT(op.values("Mean0"), ElementsAre(0.5, 0.5));
  EXPECT_THAT(op.values("X0@GRAD"), ElementsAre(5, 6));
  EXPECT_THAT(op.values("Scale0@GRAD"), ElementsAre(0, 0));
}

TEST(BatchNorm, GradientsAgreeWithFiniteDifferencesInBothLayouts) {
  for (const char* const layout : {"NCHW", "NHWC"}) {
    const int64_t channels = layout[1] == 'C' ? 3 : 4;
    RunOp op("batch_norm");
    op.in("X", {2, 3, 5, 4}, noise(120), DType::kFloat64)
        .in("Scale", {channels}, noise(static_cast<size_t>(channels), 2), DType::kFloat64)
        .in("Bias", {channels}, {0.5}, DType::kFloat64)
        .in("Mean", {channels}, {0}, DType::kFloat64)
        .in("Variance", {channels}, {1}, DType::kFloat64)
        .out("Y")
        .out_in_place("MeanOut", "Mean")
        .out_in_place("VarianceOut", "Variance")
        .out("SavedMean")
        .out("SavedVariance")
        .attr("data_layout", layout);
    EXPECT_LT(op.gradient_error({"X", "Scale", "Bias"}, "Y0"), 1e-6) << layout;
  }
}

TEST(InplaceAbn, TheGradientIsFoundFromTheResultAlone) {
  for (const char* const activation : {"identity", "leaky_relu", "elu"}) {
    RunOp op("inplace_abn");
    op.in("X", {2, 3, 5, 2}, noise(60), DType::kFloat64)
        .in("Scale", {3}, {0.7, -1.2, 2}, DType::kFloat64)
        .in("Bias", {3}, {0.5}, DType::kFloat64)
        .in("Mean", {3}, {0}, DType::kFloat64)
        .in("Variance", {3}, {1}, DType::kFloat64)
        .out("Y")
        .out_in_place("MeanOut", "Mean")
        .out_in_place("VarianceOut", "Variance")
        .out("SavedMean")
        .out("SavedVariance")
        .attr("alpha", 0.25F)
        .attr("activation", activation);
    EXPECT_LT(op.gradient_error({"X", "Scale", "Bias"}, "Y0"), 1e-6) << activation;
  }
}

// Values that a rectifier has clipped are no longer in Y.
TEST(InplaceAbn, HasNoGradientThroughAFusedRectifier) {
  RunOp op("inplace_abn");
  op.in("X", {2, 3}, noise(6)).in("Mean", {3}, {0}).in("Variance", {3}, {1}).out("Y");
  op.out_in_place("MeanOut", "Mean").out_in_place("VarianceOut", "Variance");
  op.out("SavedMean").out("SavedVariance").attr("fuse_with_relu", true);
  op.with_grad({"X"}).feed("Y0@GRAD", {2, 3}, noise(6));
  EXPECT_THAT(op.run_text(), HasSubstr("attribute 'fuse_with_relu' has no gradient"));
}

// A negative padding crops the border, as in the original.
TEST(Conv, NegativePaddingCutsABorderOff) {
  std::vector<double> inner;
  const std::vector<double> image = noise(2 * 6 * 7, 3);
  for (size_t c = 0; c < 2; ++c) {
    for (size_t y = 1; y < 6; ++y) {
      for (size_t x = 0; x < 5; ++x) inner.push_back(image[(c * 6 + y) * 7 + x]);
    }
  }
  const std::vector<double> filter = noise(3 * 2 * 3 * 3, 4);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    RunOp expected("conv2d");
    expected.in("Input", {1, 2, 5, 5}, inner, dtype).in("Filter", {3, 2, 3, 3}, filter, dtype);
    ASSERT_EQ(expected.ints("paddings", {0, 1, 0, 0}).out("Output").run_text(), "ok");
    RunOp op("conv2d");
    op.in("Input", {1, 2, 6, 7}, image, dtype).in("Filter", {3, 2, 3, 3}, filter, dtype);
    ASSERT_EQ(op.ints("paddings", {-1, 1, 0, -2}).out("Output").run_text(), "ok");
    ASSERT_EQ(dims(op.value("Output0")), dims(expected.value("Output0")));
    const std::vector<double> found = op.values("Output0");
    const std::vector<double> wanted = expected.values("Output0");
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-4) << i;
  }
  RunOp op("conv2d");
  op.in("Input", {1, 2, 6, 7}, image, DType::kFloat64);
  op.in("Filter", {3, 2, 3, 3}, filter, DType::kFloat64);
  op.ints("paddings", {-1, 1, 0, -2}).out("Output");
  EXPECT_LT(op.gradient_error({"Input", "Filter"}, "Output0"), 1e-6);
}

TEST(BatchNorm, AScaleOfTheWrongLengthIsRefused) {
  RunOp op("batch_norm_grad");
  op.in("X", {2, 3}, {1})
      .in("Y@GRAD", {2, 3}, {1})
      .in("Scale", {2}, {1})
      .in("SavedMean", {3}, {0})
      .in("SavedVariance", {3}, {1})
      .out("X@GRAD");
  EXPECT_EQ(op.run_text(), "Scale must have 3 elements of type f32, found f32 [2]");
}

TEST(LayerNorm, GradientsAgreeWithFiniteDifferences) {
  RunOp op("layer_norm");
  op.in("X", {3, 2, 7}, noise(42), DType::kFloat64)
      .in("Scale", {14}, noise(14, 2), DType::kFloat64)
      .in("Bias", {14}, noise(14, 3), DType::kFloat64)
      .out("Y")
      .out("Mean")
      .out("Variance");
  EXPECT_LT(op.gradient_error({"X", "Scale", "Bias"}, "Y0"), 1e-6);
}

TEST(LayerNorm, SixteenBitRowsHaveStatisticsInFloat) {
  RunOp op("layer_norm");
  op.in("X", {1, 4}, {1, 2, 3, 4}, DType::kBfloat16).out("Y").out("Mean").out("Variance");
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_EQ(op.tensor("Mean0").dtype(), DType::kFloat32);
  EXPECT_THAT(op.values("Mean0"), ElementsAre(2.5));
  EXPECT_NEAR(op.values("Y0")[0], -1.3416, 0.01);
}

TEST(SpectralNorm, TheGradientTakesSingularVectorsForConstant) {
  // without iterations, U and V do not depend on Weight, so the gradient is exact
  RunOp op("spectral_norm");
  op.in("Weight", {2, 3, 2}, noise(12), DType::kFloat64)
      .in("U", {3}, {0.8, 0.5, -0.6}, DType::kFloat64)
      .in("V", {4}, {0.5, 0.9, -0.5, 0.4}, DType::kFloat64)
      .out("Out")
      .attr("dim", 1)
      .attr("power_iters", 0);
  EXPECT_LT(op.gradient_error({"Weight"}, "Out0"), 1e-6);
}

TEST(ConvShift, CorrelatesInACircle) {
  RunOp op("conv_shift");
  op.in("X", {1, 4}, {1, 2, 3, 4}).in("Y", {1, 3}, {10, 1, 100}).out("Out");
  ASSERT_EQ(op.run_text(), "ok");
  // Out[j] = 10 X[j - 1] + X[j] + 100 X[j + 1]
  EXPECT_THAT(op.values("Out0"), ElementsAre(241, 312, 423, 134));
}

TEST(ConvShift, GradientsAgreeWithFiniteDifferences) {
  RunOp op("conv_shift");
  op.in("X", {2, 4}, noise(8), DType::kFloat64)
      .in("Y", {2, 5}, noise(10, 2), DType::kFloat64)
      .out("Out");
  EXPECT_LT(op.gradient_error({"X", "Y"}, "Out0"), 1e-6);
}

TEST(DataNorm, StatisticsGrowByTheRowsThatHaveTheSlot) {
  RunOp op("data_norm");
  op.in("X", {2, 2}, {0, 7, 2, 5})
      .in("BatchSize", {2}, {4})
      .in("BatchSum", {2}, {4})
      .in("BatchSquareSum", {2}, {16})
      .out("Y")
      .out("Means")
      .out("Scales")
      .attr("slot_dim", 2)
      .attr("epsilon", 0.001F);
  op.with_grad({"X", "BatchSize", "BatchSum", "BatchSquareSum"}).feed("Y0@GRAD", {2, 2}, {1});
  ASSERT_EQ(op.run_text(), "ok");
  EXPECT_THAT(op.values("Y0"), ElementsAre(0, 0, 0.5, 2));  // row 0 has no shows
  EXPECT_THAT(op.values("BatchSize0@GRAD"), ElementsAre(1, 1));
  EXPECT_THAT(op.values("BatchSum0@GRAD"), ElementsAre(2, 5));
  EXPECT_NEAR(op.values("BatchSquareSum0@GRAD")[1], 16.001, 1e-4);
}

TEST(Interp, ASizeBelowOneIsRefused) {
  RunOp op("nearest_interp_v2");
  op.in("X", {1, 1, 2, 2}, {1}).in("OutSize", {2}, {4, 0}, DType::kInt32).out("Out");
  op.attr("out_h", 4).attr("out_w", 4);
  EXPECT_EQ(op.run_text(), "cannot resize spatial dim 1 from 2 to 0");
}

// The sizes of the attributes would be taken instead, as in the older ops.
TEST(Interp, AFactorThatIsNotAboveZeroIsRefused) {
  for (const float factor : {-2.0F, 0.0F}) {
    RunOp op("nearest_interp_v2");
    op.in("X", {1, 1, 2, 2}, {1}).out("Out").attr("out_h", 4).attr("out_w", 4);
    op.attr("scale", std::vector<float>{factor});
    EXPECT_THAT(op.run_text(), HasSubstr("factors of sizes must be above 0"));
  }
}

TEST(DeformableConv, GradientsAgreeWithFiniteDifferences) {
  RunOp op("deformable_conv");
  op.in("Input", {1, 4, 4, 5}, noise(80), DType::kFloat64)
      .in("Offset", {1, 16, 3, 4}, noise(192, 2), DType::kFloat64)
      .in("Filter", {2, 2, 2, 2}, noise(16, 3), DType::kFloat64)
      .in("Mask", {1, 8, 3, 4}, noise(96, 4), DType::kFloat64)
      .out("Output")
      .attr("groups", 2)
      .attr("deformable_groups", 2);
  EXPECT_LT(op.gradient_error({"Input", "Offset", "Filter", "Mask"}, "Output0"), 1e-5);
}

}  // namespace
}  // namespace millrace::kernels
